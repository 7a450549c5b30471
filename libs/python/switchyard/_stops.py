"""Whether the processes of a job stop, or save, at the step that they are at. They all decide alike."""

import sys
from typing import Any, Optional, Tuple

from switchyard._environment import Environment
from switchyard._link import Link
from switchyard._meter import Stopwatch

SECONDS_BETWEEN_SAVES = 600.0


class Stops:
    """The decisions of one process about the steps of a training."""

    def __init__(self, environment: Environment, link: Link):
        self._environment = environment
        self._link = link
        self._decided: Tuple[int, bool, bool] = (-1, False, False)
        self._saved = Stopwatch()
        # Set once the code asks at steps: from then on it may be asked to leave at any.
        self.followed = False
        # Whether the training has stopped in the middle of an epoch.
        self.stopped = False

    @property
    def announced(self) -> bool:
        """Whether the code can stop at any step: it asks, and its processes can agree on the step."""
        return self.followed and (self._environment.world_size == 1 or _distributed() is not None)

    def saved(self) -> None:
        """A checkpoint was written."""
        self._saved.lap()

    def at(self, step: int, epochs_done: int) -> Tuple[bool, bool]:
        """Whether to stop, and whether to save, after a step. Processes of a job agree every few steps."""
        self.followed = True
        if self._decided[0] != step:
            stop, save = self._decide(step, epochs_done)
            self._decided, self.stopped = (step, stop, save or stop), self.stopped or stop
        return self._decided[1], self._decided[2]

    def _decide(self, step: int, epochs_done: int) -> Tuple[bool, bool]:
        environment = self._environment
        distributed: Optional[Any] = None
        if environment.world_size > 1:
            distributed = _distributed()
            if distributed is None or step % environment.heartbeat_steps:
                return False, False  # they could leave at different steps, and wait for each other for ever
        stop, save = False, self._saved.elapsed() >= SECONDS_BETWEEN_SAVES
        if environment.rank == 0 and self._link.stop_near:
            self._link.settle()
            stop = self._link.stop_asked(epochs_done, step) is True
        if distributed is not None:
            torch = sys.modules["torch"]
            device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
            word = torch.tensor([int(stop), int(save)], device=device)
            distributed.broadcast(word, 0)
            stop, save = (bool(said) for said in word.tolist())
        return stop, save


def _distributed() -> Optional[Any]:
    """torch.distributed, once the processes have met through it."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed
