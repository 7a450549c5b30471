"""What goes wrong, in sentences: what, where, and what to do."""

from __future__ import annotations

from typing import List, Sequence

from switchyard.client._records import Job, Problem, Reason


class Error(Exception):
    """All errors of this package are of this class."""


class Away(Error):
    """Nobody answers: the service web is not running, or has gone away in the middle of an answer."""


class Late(Error, TimeoutError):
    """The time that the caller gave has passed."""


class Refused(Error):
    """An answer that is no success. ``problem`` is its body, by RFC 9457."""

    def __init__(self, problem: Problem):
        super().__init__(_sentence(problem))
        self.problem = problem
        self.status = problem["status"]


class NotFound(Refused):
    """There is no such job."""


class Forbidden(Refused):
    """Nobody is logged in, or the caller may not do this."""


class Rejected(Error):
    """Admission refused a submission. ``job`` is its record."""

    def __init__(self, job: Job):
        reasons = job.get("blockers", [])
        why = _lines(reasons) if reasons else job.get("message", "")
        super().__init__("job %s rejected:\n  %s" % (job["id"], why))
        self.job = job


class Unfinished(Late):
    """Not all jobs had ended in time. ``jobs`` are their newest records."""

    def __init__(self, message: str, jobs: Sequence[Job]):
        super().__init__(message)
        self.jobs: List[Job] = list(jobs)


def refusal(problem: Problem) -> Refused:
    """The error for a problem."""
    kinds = {401: Forbidden, 403: Forbidden, 404: NotFound}
    return kinds.get(problem["status"], Refused)(problem)


def reason_text(reason: Reason) -> str:
    """A reason as the command line prints it."""
    text = reason["code"] + " "
    if reason.get("field"):
        text += reason["field"] + ": "
    text += reason["message"]
    return "%s (%s)" % (text, reason["hint"]) if reason.get("hint") else text


def _lines(reasons: Sequence[Reason]) -> str:
    return "\n  ".join(reason_text(reason) for reason in reasons)


def _sentence(problem: Problem) -> str:
    text = "%s: %s" % (problem["title"], problem["detail"])
    if problem.get("fix"):
        text += "; " + problem["fix"]
    reasons = problem.get("reasons", [])
    return text + "\n  " + _lines(reasons) if len(reasons) > 1 else text
