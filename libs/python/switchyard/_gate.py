"""Lets a loop that steps once for each batch it is given train on parts of a batch, and step once for all of them."""

from typing import Any, Iterable, Iterator, Tuple

Part = Tuple[Any, float, bool]


class Gate:
    """Stands before an optimizer's step and zero_grad while a loop goes over the parts of a batch.

    The loss of a part is its mean, so its gradient has the part's share of the batch as weight. The sum of what came
    before is divided by the weight first and multiplied with it after the part's own gradient was added.
    """

    def __init__(self, optimizer: Any):
        self._optimizer = optimizer
        self._step = optimizer.step
        self._zero_grad = optimizer.zero_grad
        self._own = {name: optimizer.__dict__[name] for name in ("step", "zero_grad") if name in optimizer.__dict__}
        self._weight, self._first, self._last, self._stepped = 1.0, True, True, False

    def __enter__(self) -> "Gate":
        self._optimizer.step = self.step
        self._optimizer.zero_grad = self.zero_grad
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("step", "zero_grad"):
            self._optimizer.__dict__.pop(name, None)
        self._optimizer.__dict__.update(self._own)

    def begin(self, weight: float, first: bool, last: bool) -> None:
        """Comes before the loop gets a part."""
        self._weight, self._first, self._last, self._stepped = weight, first, last, False
        if not first:
            self._scale(1 / weight)

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Steps after the last part."""
        self._stepped = True
        if not (self._first and self._last):
            self._scale(self._weight)
        return self._step(*args, **kwargs) if self._last else None

    def zero_grad(self, *args: Any, **kwargs: Any) -> Any:
        """Clears before the first part or after the last one's step: a loop does it at its begin or at its end."""
        if self._last and self._stepped or self._first and not self._stepped:
            return self._zero_grad(*args, **kwargs)
        return None

    def _scale(self, factor: float) -> None:
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)


def gated(batches: Iterable[Iterable[Part]], optimizer: Any) -> Iterator[Any]:
    """The parts of all batches, one after the other, each with its weight and whether it is the last of its batch."""
    with Gate(optimizer) as gate:
        for parts in batches:
            first = True
            for part, weight, last in parts:
                gate.begin(weight, first, last)
                yield part
                first = False
