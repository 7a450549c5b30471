"""What a study asks. Its state is its trials: those with jobs are found again by their ids and labels."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, cast

from switchyard.client import _steps
from switchyard.client._errors import Error
from switchyard.client._http import Request
from switchyard.client._questions import ENDED, PREFIX, Questions
from switchyard.client._records import Epoch, Held, Job, Parameter, Suggestion
from switchyard.client._space import Params, Space, filled
from switchyard.client._steps import Question

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,49}")
_BATCH = 100


class Over(Error):
    """All points of the space have been tried."""


@dataclass
class Trial:
    """One training of a study, with values of its own. state is running, ended or failed; job is its id, if it has one."""

    number: int
    params: Params
    state: str = "running"
    value: Optional[float] = None
    job: str = ""
    message: str = field(default="", compare=False)


class Search:
    """The questions of a study."""

    def __init__(
        self, questions: Questions, name: str, space: Mapping[str, Parameter], objective: str, goal: str, algorithm: str, seed: int
    ):
        if not _NAME.fullmatch(name):
            raise Error("study %r: want a name of at most 50 small letters, digits and hyphens, such as digits-2" % name)
        if goal not in ("", "minimise", "maximise"):
            raise Error("goal %r: want minimise or maximise" % goal)
        self.name = name
        self.trials: List[Trial] = []
        self._questions = questions
        self._space = Space(space)
        self._objective = objective
        self._minimise = goal == "minimise" or (not goal and objective.endswith(("loss", "error")))
        self._settings = {"algorithm": algorithm, "seed": seed, "minimise": self._minimise}
        self._next = 0
        self._loaded = False

    def best(self) -> Optional[Trial]:
        sign = 1 if self._minimise else -1
        ended = [(sign * trial.value, trial.number, trial) for trial in self.trials if trial.value is not None]
        return min(ended)[2] if ended else None

    # Trials.

    def load(self) -> Question[List[Trial]]:
        """Finds the trials that have jobs."""
        if self._loaded:
            return self.trials
        found: Dict[int, Job] = {}
        listed = yield from self._questions.jobs({"label": {"study": self.name}})
        ids = [job["id"] for job in listed if self._number(job["id"]) is not None]
        for start in range(0, len(ids), _BATCH):
            query = {"id": ",".join(ids[start : start + _BATCH])}
            answer = yield from self._questions.ask(Request("GET", PREFIX + "/records", query))
            for job in cast(Held, answer.json())["jobs"]:
                found[cast(int, self._number(job["id"]))] = job
        known = {trial.number for trial in self.trials}
        for number, job in sorted(found.items()):
            self._next = max(self._next, number + 1)
            if number in known or job["state"] == "rejected":
                continue
            params = self._space.read(job["spec"].get("env", {}))
            if not params:
                raise Error("job %s is no trial of yours: choose another name for the study" % job["id"])
            trial = Trial(number, params, job=job["id"])
            self.trials.append(trial)
            yield from self._settle(trial, job)
        self.trials.sort(key=lambda trial: trial.number)
        self._loaded = True
        return self.trials

    def _number(self, id: str) -> Optional[int]:
        found = re.fullmatch(re.escape(self.name) + r"-(\d+)", id)
        return int(found.group(1)) if found else None

    def ask(self) -> Question[Trial]:
        yield from self.load()
        told = []
        for trial in self.trials:
            one: Dict[str, Any] = {"params": trial.params}
            if trial.value is not None:
                one["value"] = trial.value
            if trial.state == "failed":
                one["failed"] = True
            told.append(one)
        body = dict(self._settings, space=self._space.parameters, trials=told)
        answer = yield from self._questions.ask(Request("POST", PREFIX + "/suggestions", {}, body))
        suggestion = cast(Suggestion, answer.json())
        if suggestion.get("over"):
            raise Over("study %s: all %d points have been tried" % (self.name, len(self.trials)))
        trial = Trial(self._next, self._space.typed(suggestion["params"]))
        self._next += 1
        self.trials.append(trial)
        return trial

    def tell(self, trial: Trial, value: Optional[float], failed: bool) -> None:
        if failed != (value is None):
            raise Error("trial %d: want a value, or failed=True" % trial.number)
        if value is not None and not abs(value) < float("inf"):
            value, failed = None, True  # a training that diverged
        trial.value, trial.state = value, "failed" if failed else "ended"

    # Their jobs.

    def submit(self, trial: Trial, command: Sequence[str], keys: Mapping[str, Any]) -> Question[Job]:
        keys = dict({"name": self.name, "family": self.name}, **keys)
        keys["labels"] = dict(keys.get("labels", {}), study=self.name)
        keys["env"] = dict(keys.get("env", {}), **self._space.variables(trial.params))
        words = [filled(os.fspath(word), trial.params) for word in command]
        try:
            job = yield from self._questions.submit(words, "%s-%d" % (self.name, trial.number), keys)
        except Error:
            # Whether there is a job, what is stored says.
            self.trials.remove(trial)
            self._loaded = False
            raise
        trial.job = job["id"]
        return job

    def run(self, command: Sequence[str], trials: int, at_once: int, keys: Mapping[str, Any]) -> Question[None]:
        """Gives each trial that ends, until there are as many as asked for, those of earlier runs included."""
        yield from self.load()
        while True:
            running = {trial.job: trial for trial in self.trials if trial.state == "running" and trial.job}
            while len(running) < at_once and len(self.trials) < trials:
                try:
                    trial = yield from self.ask()
                except Over:
                    trials = len(self.trials)
                    break
                yield from self.submit(trial, command, keys)
                running[trial.job] = trial
            if not running:
                return
            records = yield from self._questions.follow(list(running), lambda job: job["state"] in ENDED, None, 1)
            for id, job in records.items():
                if job["state"] in ENDED:
                    yield from self._settle(running[id], job)
                    yield from _steps.give(running[id])

    def _settle(self, trial: Trial, job: Job) -> Question[None]:
        """Takes over how the job of a trial has ended."""
        if job["state"] not in ENDED:
            return
        if job["state"] != "succeeded":
            trial.message = job.get("message", "")
            self.tell(trial, None, True)
            return
        epochs = yield from self._questions.epochs(job)
        value = newest(self._objective, epochs)
        if value is None:
            raise Error(
                "job %s reported no %s at the end of an epoch: report it, by job.report(%s=...), or tell the trial yourself"
                % (job["id"], self._objective, self._objective)
            )
        if math.isnan(value):
            trial.message = "%s is no number" % self._objective
        self.tell(trial, value, False)


def newest(objective: str, epochs: Sequence[Epoch]) -> Optional[float]:
    """The newest value of the objective: NaN where it is no number any more, None if it was never reported.

    The losses of steps count for the newest epoch alone: a step that went wrong says nothing of the epochs after it.
    """
    for epoch in reversed(epochs):
        metrics = epoch.get("metrics", {})
        value = epoch.get("loss") if objective == "loss" else metrics.get(objective)
        if value is not None:
            return value
        if metrics.get("nonfinite_" + objective) or epoch is epochs[-1] and metrics.get("nonfinite_steps"):
            return math.nan
    return None
