"""What the two forms of the client do for the questions: the only I/O there is, as data.

A question is a generator that yields steps, is sent what became of each, and returns its answer. It knows neither
sockets nor clocks, so it is written once for both forms.
"""

from __future__ import annotations

from typing import Any, Generator, NamedTuple, Optional, TypeVar, Union

from switchyard.client._errors import Away, Late
from switchyard.client._http import Answer, Request
from switchyard.client._place import Address

T = TypeVar("T")


class Ask(NamedTuple):
    """Send a request: the reply is the Answer. Raises Away if nobody answers, Late after the seconds."""

    address: Address
    request: Request
    cookie: str = ""
    seconds: Optional[float] = None


class Open(NamedTuple):
    """Send a request and read the head of its answer: the reply is an Answer without a body, which Next brings."""

    address: Address
    request: Request
    cookie: str = ""


class Next(NamedTuple):
    """Read on: the reply is the next piece of the body, b"" at its end. Raises Away, or Late after the seconds."""

    seconds: Optional[float] = None


class Pause(NamedTuple):
    """Wait."""

    seconds: float


class Now(NamedTuple):
    """Read a clock: the reply is its seconds."""


class Give(NamedTuple):
    """Give the caller one of several answers."""

    item: Any


Step = Union[Ask, Open, Next, Pause, Now, Give]
Reply = Union[Answer, bytes, float, None]
Outcome = Union[Reply, Away, Late]
Question = Generator[Step, Reply, T]


def advance(question: Question[T], outcome: Outcome) -> Step:
    """Tells a question what became of its step, and returns the next one. Raises StopIteration with its answer."""
    if isinstance(outcome, (Away, Late)):
        return question.throw(outcome)
    return question.send(outcome)


def ask(step: Union[Ask, Open]) -> Question[Answer]:
    """The answer to a request."""
    reply = yield step
    assert isinstance(reply, Answer)
    return reply


def now() -> Question[float]:
    """The seconds of a clock."""
    reply = yield Now()
    assert isinstance(reply, float)
    return reply


def pause(seconds: float) -> Question[None]:
    """Waits."""
    yield Pause(seconds)


def give(item: object) -> Question[None]:
    """Gives the caller one of several answers."""
    yield Give(item)


def following(seconds: Optional[float]) -> Question[bytes]:
    """The next piece of the answer that is open."""
    reply = yield Next(seconds)
    assert isinstance(reply, bytes)
    return reply
