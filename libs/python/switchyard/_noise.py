"""The gradient noise of a training, from gradients over few and over many samples of the same step.

The squared norm of a mean gradient over b samples is expected to be |mu|^2 + tr(S)/b, with mu the true gradient and S
the covariance of single samples' gradients. Two sizes thus give unbiased estimates of both (McCandlish et al. 2018,
appendix A.1).
"""

import math
import sys
from typing import Any, Callable, List, Optional, Tuple

# A single estimate is often off by more than its value. EVIDENCE are as many as are needed before anything is said:
# a batch chosen by fewer would be too large as often as not. SMOOTHED are as many as the running averages go back.
EVIDENCE = 20
SMOOTHED = 50


class Noise:
    """Running averages of |mu|^2 and tr(S); values may be tensors, which are only read when averages are asked for."""

    def __init__(self) -> None:
        self._square: Any = 0.0
        self._variance: Any = 0.0
        self._added = 0
        self._means = (0.0, 0.0)
        self._count = 0

    @property
    def count(self) -> int:
        """Estimates so far."""
        return self._count + self._added

    def add(self, few: float, square_of_few: Any, many: float, square_of_many: Any) -> None:
        """One step: the squared norms of the mean gradients over so few and so many of its samples."""
        if not 0 < few < many:
            return
        variance = (square_of_few - square_of_many) / (1.0 / few - 1.0 / many)
        self._variance = self._variance + variance
        self._square = self._square + (square_of_many - variance / many)
        self._added += 1

    def averages(self) -> Optional[Tuple[float, float]]:
        """The means of |mu|^2 and tr(S) over the last steps, at least 0; None before there is enough evidence."""
        if self._added:
            square, variance, added = float(self._square), float(self._variance), self._added
            self._square, self._variance, self._added = 0.0, 0.0, 0
            if math.isfinite(square) and math.isfinite(variance):
                self._count += added
                weight = min(1.0, added / min(self._count, SMOOTHED))
                had = self._means
                self._means = (
                    had[0] + weight * (square / added - had[0]), had[1] + weight * (variance / added - had[1])
                )
        if self._count < EVIDENCE:
            return None
        return max(self._means[0], 0.0), max(self._means[1], 0.0)

    def state(self) -> List[float]:
        """What a checkpoint keeps."""
        self.averages()
        return [self._means[0], self._means[1], min(self._count, SMOOTHED)]

    def restore(self, state: Any) -> None:
        """Goes on from what a checkpoint kept; anything else is ignored."""
        try:
            square, variance, count = (float(value) for value in state)
        except (TypeError, ValueError):
            return
        if math.isfinite(square) and math.isfinite(variance) and count > 0:
            self._means, self._count = (square, variance), int(count)


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
