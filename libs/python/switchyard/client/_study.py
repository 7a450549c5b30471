"""Searches whose trials are jobs: see Study."""

from __future__ import annotations

from typing import Any, AsyncIterator, Iterator, List, Mapping, Optional, Sequence

from switchyard.client import _async_yard, _yard
from switchyard.client._async_yard import AsyncYard
from switchyard.client._questions import Questions
from switchyard.client._records import Job, Parameter
from switchyard.client._search import Search, Trial
from switchyard.client._yard import Yard


class _Study:
    """What both forms of a study are."""

    def __init__(
        self, questions: Questions, name: str, space: Mapping[str, Parameter], objective: str, goal: str, algorithm: str, seed: int
    ):
        self._search = Search(questions, name, space, objective, goal, algorithm, seed)

    @property
    def name(self) -> str:
        """Its name: the label `study` of its jobs, whose ids begin with it."""
        return self._search.name

    @property
    def trials(self) -> List[Trial]:
        """The trials that are known, in the order in which they were started."""
        return list(self._search.trials)

    @property
    def best(self) -> Optional[Trial]:
        """The trial with the best value; None before the first one."""
        return self._search.best()

    def tell(self, trial: Trial, value: Optional[float] = None, *, failed: bool = False) -> None:
        """Says how a trial ended: with a value, or failed."""
        self._search.tell(trial, value, failed)


class Study(_Study):
    """A search for good parameters. The service experiments says where it goes next; its trials are run by its caller.

    space has a parameter by each name: choice(...), uniform, log_uniform, integer or log_integer. algorithm is random,
    grid or gp (a Gaussian process), seed makes two searches differ. objective is what the jobs report at the end of
    their epochs, loss or a metric; the last value counts. goal is minimise or maximise; without it what ends in loss or
    error is minimised.

    A study has no file. A Study of the same name finds the trials that have jobs, and goes on with them.
    """

    def __init__(
        self,
        yard: Yard,
        name: str,
        space: Mapping[str, Parameter],
        *,
        objective: str = "loss",
        goal: str = "",
        algorithm: str = "gp",
        seed: int = 0,
    ):
        super().__init__(yard._questions, name, space, objective, goal, algorithm, seed)

    def load(self) -> List[Trial]:
        """Finds the trials that have jobs. The other calls do it by themselves."""
        return list(_yard.answered(self._search.load()))

    def ask(self) -> Trial:
        """The next trial. Raises Over if all points have been tried."""
        return _yard.answered(self._search.ask())

    def submit(self, trial: Trial, command: Sequence[str], **keys: Any) -> Job:
        """Submits the job of a trial: as Yard.submit, with ${name} in the command for the value of a parameter, which is in
        the environment as SWITCHYARD_PARAM_<NAME> too."""
        return _yard.answered(self._search.submit(trial, command, keys))

    def run(self, command: Sequence[str], *, trials: int, at_once: int = 1, **keys: Any) -> Iterator[Trial]:
        """Runs trials as jobs until there are as many in all, and gives each one that ends."""
        return _yard.streamed(self._search.run(command, trials, at_once, keys))


class AsyncStudy(_Study):
    """What Study is, for asyncio."""

    def __init__(
        self,
        yard: AsyncYard,
        name: str,
        space: Mapping[str, Parameter],
        *,
        objective: str = "loss",
        goal: str = "",
        algorithm: str = "gp",
        seed: int = 0,
    ):
        super().__init__(yard._questions, name, space, objective, goal, algorithm, seed)

    async def load(self) -> List[Trial]:
        """See Study; likewise below."""
        return list(await _async_yard.answered(self._search.load()))

    async def ask(self) -> Trial:
        return await _async_yard.answered(self._search.ask())

    async def submit(self, trial: Trial, command: Sequence[str], **keys: Any) -> Job:
        return await _async_yard.answered(self._search.submit(trial, command, keys))

    def run(self, command: Sequence[str], *, trials: int, at_once: int = 1, **keys: Any) -> AsyncIterator[Trial]:
        return _async_yard.streamed(self._search.run(command, trials, at_once, keys))
