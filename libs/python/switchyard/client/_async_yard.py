"""The client for programs with an event loop: see AsyncYard."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from typing import Any, AsyncIterator, List, Mapping, Optional, Sequence, Union, cast

from switchyard.client._errors import Away, Late
from switchyard.client._http import Answer, Reader
from switchyard.client._questions import PATIENCE_SECONDS, Change, JobRef, Questions, Results
from switchyard.client._records import About, Detail, Epoch, Job, Node, Spec, Text, ViewJob
from switchyard.client._steps import Ask, Give, Next, Now, Open, Pause, Outcome, Question, Step, T, advance
from switchyard.client._yard import short_path

_PIECE = 64 * 1024


class AsyncYard:
    """What Yard is, for asyncio: each call is awaited, logs and changes are iterated with `async for`.

    It starts no thread and holds no connection; any number of calls may run at the same time.
    """

    def __init__(
        self, address: Optional[str] = None, *, environ: Optional[Mapping[str, str]] = None, patience: float = PATIENCE_SECONDS
    ):
        self._questions = Questions(address, environ, patience)

    async def about(self) -> About:
        """See Yard.about; likewise below."""
        return await answered(self._questions.about())

    async def submit(self, job: Union[Spec, Sequence[str]], *, id: str = "", **keys: Any) -> Job:
        return await answered(self._questions.submit(job, id, keys))

    async def jobs(
        self,
        *,
        user: Optional[str] = None,
        state: Optional[Sequence[str]] = None,
        name: Optional[str] = None,
        project: Optional[str] = None,
        label: Optional[Mapping[str, str]] = None,
        array: Optional[str] = None,
        rejected: Optional[bool] = None,
        members: Optional[bool] = None,
        trials: Optional[bool] = None,
        newest: Optional[int] = None,
        finished: Optional[int] = None,
    ) -> List[ViewJob]:
        return await answered(
            self._questions.jobs(
                dict(user=user, state=state, name=name, project=project, label=label, array=array, rejected=rejected,
                     members=members, trials=trials, newest=newest, finished=finished)
            )
        )  # fmt: skip

    async def job(self, job: JobRef) -> Job:
        return await answered(self._questions.find(job))

    async def describe(self, job: JobRef) -> Detail:
        return await answered(self._questions.describe(job))

    async def epochs(self, job: JobRef) -> List[Epoch]:
        return await answered(self._questions.epochs(job))

    async def explain(self, job: JobRef) -> Text:
        return await answered(self._questions.explain(job))

    async def nodes(self) -> List[Node]:
        return await answered(self._questions.nodes())

    async def wait(self, *jobs: JobRef, timeout: Optional[float] = None) -> List[Job]:
        return await answered(self._questions.wait(jobs, timeout))

    def logs(self, job: JobRef, *, follow: bool = False, tail: Optional[int] = None) -> AsyncIterator[str]:
        return streamed(self._questions.logs(job, follow, tail))

    async def cancel(self, *jobs: JobRef, reason: str = "") -> List[Job]:
        return await answered(self._questions.cancel(jobs, reason))

    async def pause(self, job: JobRef, *, force: bool = False, reason: str = "") -> Job:
        return await answered(self._questions.want(job, "paused", reason, force=force))

    async def resume(self, job: JobRef, *, reason: str = "") -> Job:
        return await answered(self._questions.want(job, "run", reason))

    async def hold(self, job: JobRef, *, reason: str = "") -> Job:
        return await answered(self._questions.want(job, "held", reason))

    async def requeue(self, job: JobRef, *, force: bool = False, reason: str = "") -> Job:
        return await answered(self._questions.want(job, "run", reason, force=force, requeue=True))

    async def set(self, job: JobRef, *, reason: str = "", **keys: Any) -> Job:
        return await answered(self._questions.set(job, keys, reason))

    async def results(self, job: JobRef) -> Results:
        return await answered(self._questions.results(job))

    def fetch(self, job: JobRef, path: str) -> AsyncIterator[bytes]:
        """The pieces of a file of a job, as results names it."""
        return streamed(self._questions.fetch(job, path))

    def changes(self, since: str = "") -> AsyncIterator[Change]:
        return streamed(self._questions.changes(since))


async def answered(question: Question[T]) -> T:
    """Answers a question."""
    wire = _Wire()
    try:
        step = next(question)
        while True:
            step = advance(question, await wire.do(step))
    except StopIteration as done:
        return cast(T, done.value)
    finally:
        wire.close()
        question.close()


async def streamed(question: Question[None]) -> AsyncIterator[Any]:
    """Answers a question that has several answers."""
    wire = _Wire()
    try:
        step = next(question)
        while True:
            if isinstance(step, Give):
                yield step.item
                step = question.send(None)
            else:
                step = advance(question, await wire.do(step))
    except StopIteration:
        return
    finally:
        wire.close()
        question.close()


class _Wire:
    """Carries out steps on the streams of asyncio, one connection at a time."""

    def __init__(self) -> None:
        self._in: Optional[asyncio.StreamReader] = None
        self._out: Optional[asyncio.StreamWriter] = None
        self._reader = Reader()
        self._early = b""

    def close(self) -> None:
        if self._out is not None:
            self._out.close()
            self._in = self._out = None

    async def do(self, step: Step) -> Outcome:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        if isinstance(step, Now):
            return time.monotonic()
        try:
            if isinstance(step, Next):
                return await asyncio.wait_for(self._following(), step.seconds)
            assert isinstance(step, (Ask, Open))
            self.close()
            if isinstance(step, Ask):
                return await asyncio.wait_for(self._whole(step), step.seconds)
            return await self._head(step)
        except asyncio.TimeoutError:
            return Late("no answer in time")
        except Away as gone:
            return gone
        except (OSError, EOFError) as problem:
            return Away("the service web is away: %s; is `switchyard up` running?" % problem)

    async def _whole(self, step: Ask) -> Answer:
        await self._send(step)
        body = []
        while not self._reader.ended:
            body.append(await self._receive())
        self.close()
        return Answer(self._reader.status, self._reader.headers, b"".join(body))

    async def _head(self, step: Open) -> Answer:
        await self._send(step)
        while not self._reader.headed:
            self._early = await self._receive()
        return Answer(self._reader.status, self._reader.headers, b"")

    async def _following(self) -> bytes:
        piece, self._early = self._early, b""
        while not piece and not self._reader.ended:
            piece = await self._receive()
        return piece

    async def _send(self, step: Union[Ask, Open]) -> None:
        self._reader, self._early = Reader(), b""
        address = step.address
        if address.socket:
            with short_path(address.socket) as path:
                self._in, self._out = await asyncio.open_unix_connection(path)
        else:
            context = ssl.create_default_context() if address.tls else None
            self._in, self._out = await asyncio.open_connection(address.host, address.port, ssl=context)
        self._out.write(step.request.encode(address.name, step.cookie))
        await self._out.drain()

    async def _receive(self) -> bytes:
        assert self._in is not None
        return self._reader.feed(await self._in.read(_PIECE))
