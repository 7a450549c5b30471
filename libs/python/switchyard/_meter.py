"""Adds up steps into the figures of a heartbeat or an epoch, and lets no NaN or infinity through."""

import math
import sys
import time
from typing import Any, Dict, Mapping, Optional

# The metric that counts the steps whose loss was NaN or infinite. It is sent in place of a mean loss, since the mean of
# the other steps would make a training that diverges look healthy.
NONFINITE_STEPS = "nonfinite_steps"
# What the metric begins with that is sent in place of another value which is NaN or infinite. Without it a search would
# go by the last number that was sent.
NONFINITE = "nonfinite_"


class Meter:
    """Sums over the steps since the last reset.

    Plain numbers are averaged. A tensor is only kept, the latest one, and read when figures are asked for:
    reading a tensor waits for the device, which must not happen at every step.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Starts from nothing."""
        self.steps = 0
        self.seconds = 0.0
        self.wait_seconds = 0.0
        self.samples = 0
        self._values: Dict[str, "_Value"] = {}

    def add(self, seconds: float, samples: int, values: Mapping[str, Any], wait_seconds: float = 0.0) -> None:
        """One optimizer step, in which the process waited for the others so long."""
        self.steps += 1
        self.seconds += seconds
        self.wait_seconds += min(wait_seconds, seconds)
        self.samples += samples
        self.note(values)

    def note(self, values: Mapping[str, Any]) -> None:
        """Values without a step; None is no value."""
        for name, value in values.items():
            if value is not None:
                self._values.setdefault(name, _Value()).add(value)

    def values(self) -> Dict[str, float]:
        """The finite values noted, by name; no loss but NONFINITE_STEPS if the loss of a step was not finite."""
        values = {}
        for name, value in self._values.items():
            number = finite(value.read())
            if name == "loss" and value.nonfinite:
                values[NONFINITE_STEPS] = float(value.nonfinite)
            elif number is not None:
                values[name] = number
            elif value.nonfinite:
                values[NONFINITE + name] = float(value.nonfinite)
        return values


class _Value:
    """One named value: the mean of its finite plain numbers, or its latest tensor."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0
        self._latest: Any = None
        self._read: Optional[float] = None
        # How many of the numbers, and of the tensors that were read, are NaN or infinite.
        self.nonfinite = 0

    def add(self, value: Any) -> None:
        if isinstance(value, (int, float)):
            number = finite(value)
            if number is None:
                self.nonfinite += 1
            else:
                self._sum += number
                self._count += 1
        else:
            # Detached, so that no graph of a past step is kept alive.
            self._latest = value.detach() if hasattr(value, "detach") else value

    def read(self) -> Optional[float]:
        latest, self._latest = self._latest, None
        if latest is not None:
            self._read = _number(latest)
            self.nonfinite += int(self._read is not None and not math.isfinite(self._read))
        return self._sum / self._count if self._count else self._read


class Stopwatch:
    """Seconds since the last lap."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def elapsed(self) -> float:
        """Seconds since the last lap, which goes on."""
        return time.monotonic() - self._since

    def lap(self) -> float:
        """Seconds since the last lap; the next one starts now."""
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        return seconds


def finite(value: Any) -> Optional[float]:
    """value as a float; None where it is no number, NaN or infinite."""
    number = _number(value)
    return number if number is not None and math.isfinite(number) else None


def sendable(values: Mapping[str, Any]) -> Dict[str, float]:
    """Those values that are finite numbers, as floats, and a mark for each that is NaN or infinite."""
    numbers = {name: _number(value) for name, value in values.items()}
    return {
        **{name: number for name, number in numbers.items() if number is not None and math.isfinite(number)},
        **{NONFINITE + name: 1.0 for name, number in numbers.items() if number is not None and not math.isfinite(number)},
    }


def _number(value: Any) -> Optional[float]:
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError, RuntimeError):
        return None


def figures(values: Mapping[str, float]) -> Dict[str, Any]:
    """Values as the job API takes them: the few that it knows by name, the others under ``metrics``."""
    known = {name: values[name] for name in ("loss", "grad_sqr", "grad_var") if name in values}
    others = {name: value for name, value in values.items() if name not in known}
    return dict(known, metrics=others) if others else known


def samples_in(batch: Any) -> Optional[int]:
    """The samples in a batch of tensors (alone, or in a tuple, list or dict); None where it shows no shape."""
    if isinstance(batch, Mapping):
        batch = next(iter(batch.values()), None)
    elif isinstance(batch, (tuple, list)):
        batch = batch[0] if batch else None
    shape = getattr(batch, "shape", None)
    try:
        return int(shape[0]) if shape is not None and len(shape) > 0 else None
    except (TypeError, ValueError):
        return None


def gpu_memory_bytes() -> Optional[int]:
    """The most memory that PyTorch reserved on one device so far; None unless PyTorch is loaded and uses CUDA."""
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        return int(max(torch.cuda.max_memory_reserved(device) for device in range(torch.cuda.device_count())))
    except Exception:  # A figure for the scheduler is never worth an end of the training.
        return None
