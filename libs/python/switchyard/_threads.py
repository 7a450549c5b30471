"""PyTorch's threads, kept to the processors that the scheduler leaves to this process."""

import os
import sys
from typing import Any, Mapping, Optional


class Threads:
    """Follows the processors of this process while it runs.

    PyTorch makes a thread for each processor that it finds when it starts. With fewer processors later those threads
    wait for each other by spinning, and a step takes many times as long.
    """

    def __init__(self, environ: Mapping[str, str]):
        self._asked = _number(environ.get("OMP_NUM_THREADS"))
        self._processors = processors()

    def follow(self, torch: Optional[Any] = None) -> None:
        """Sets the number of threads where the processors have changed; OMP_NUM_THREADS stays the most."""
        now = processors()
        if now == self._processors:
            return
        self._processors = now
        torch = torch or sys.modules.get("torch")
        if torch is None or now is None:
            return
        try:
            torch.set_num_threads(min(now, self._asked or now))
        except Exception:  # Speed is never worth an end of the training.
            return


def processors() -> Optional[int]:
    """How many processors this process may use; None where the system does not tell."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return None


def _number(text: Optional[str]) -> Optional[int]:
    try:
        return max(1, int(text or ""))
    except ValueError:  # A list, one number for each level: the library's own business.
        return None
