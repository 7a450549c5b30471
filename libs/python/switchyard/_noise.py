"""The gradient noise of a training, from gradients over few and over many samples of the same step.

The squared norm of a mean gradient over b samples is expected to be |mu|^2 + tr(S)/b, with mu the true gradient and S
the covariance of single samples' gradients. Two sizes thus give unbiased estimates of both (McCandlish et al. 2018,
appendix A.1).
"""

import sys
from typing import Any, Callable, List, Optional, Tuple

SMOOTHED_STEPS = 50.0


class Noise:
    """Sums estimates of |mu|^2 and tr(S); values may be tensors, which are only read when means are asked for."""

    def __init__(self) -> None:
        self._square: Any = 0.0
        self._variance: Any = 0.0
        self._steps = 0
        self._smooth: Optional[Tuple[float, float]] = None

    def add(self, few: float, square_of_few: Any, many: float, square_of_many: Any) -> None:
        """One step: the squared norms of the mean gradients over so few and so many of its samples."""
        if not 0 < few < many:
            return
        variance = (square_of_few - square_of_many) / (1.0 / few - 1.0 / many)
        self._variance = self._variance + variance
        self._square = self._square + (square_of_many - variance / many)
        self._steps += 1

    def take(self) -> Optional[Tuple[float, float]]:
        """The means of |mu|^2 and tr(S) since the last call; None without a step."""
        if not self._steps:
            return None
        mean = (float(self._square) / self._steps, float(self._variance) / self._steps)
        weight = min(1.0, self._steps / SMOOTHED_STEPS)
        had = self._smooth or mean
        self._smooth = (had[0] + weight * (mean[0] - had[0]), had[1] + weight * (mean[1] - had[1]))
        self._square, self._variance, self._steps = 0.0, 0.0, 0
        return mean

    def smoothed(self) -> Optional[Tuple[float, float]]:
        """The means over many steps, at least 0; None before the first."""
        return None if self._smooth is None else (max(self._smooth[0], 0.0), max(self._smooth[1], 0.0))


def squared_norm(parameters: List[Any]) -> Any:
    """The squared norm of the gradients that PyTorch parameters hold."""
    torch = sys.modules["torch"]
    gradients = [p.grad.detach() for p in parameters if p.grad is not None]
    if not gradients:
        return 0.0
    norms = torch._foreach_norm(gradients) if hasattr(torch, "_foreach_norm") else [g.norm() for g in gradients]
    return torch.stack([norm.float() for norm in norms]).square().sum()


def hook(model: Any, measured: Callable[[Any, Any], None]) -> None:
    """Makes a DistributedDataParallel model pass on, for each step, the squared norms before and after the averaging."""
    torch = sys.modules["torch"]
    sums: List[Any] = [0.0, 0.0]

    def reduced(total: Any, last: bool) -> Any:
        sums[1] = sums[1] + total.float().square().sum()
        if last:
            measured(sums[0], sums[1])
            sums[:] = [0.0, 0.0]
        return total

    # Without annotations: PyTorch takes none but its own types.
    def average(state, bucket):  # type: ignore[no-untyped-def]
        gradient, last = bucket.buffer(), bucket.is_last()
        sums[0] = sums[0] + gradient.float().square().sum()
        group = torch.distributed.group.WORLD
        work = torch.distributed.all_reduce(gradient.div_(group.size()), group=group, async_op=True)
        if torch.distributed.get_backend() != "gloo":
            return work.get_future().then(lambda done: reduced(done.value()[0], last))
        # Gloo calls back on a thread of its own, which aborts the process if Python ends meanwhile.
        work.wait()
        future = torch.futures.Future()
        future.set_result(reduced(gradient, last))
        return future

    model.register_comm_hook(None, average)
