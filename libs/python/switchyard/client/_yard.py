"""The client for programs that wait: see Yard."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Union, cast

from switchyard.client._errors import Away, Late
from switchyard.client._http import Answer, Reader
from switchyard.client._place import Address
from switchyard.client._questions import PATIENCE_SECONDS, Change, JobRef, Questions, Results
from switchyard.client._records import About, Detail, Epoch, Job, Node, Spec, Text, ViewJob
from switchyard.client._steps import Ask, Give, Next, Now, Open, Pause, Outcome, Question, Step, T, advance

_PIECE = 64 * 1024


class Yard:
    """An installation, asked over the HTTP API. A Yard holds no connection, and several threads may use one.

    address is the path of the socket of the service web, or a link that `switchyard open` has printed. Without it the
    installation is the one that the command line finds: SWITCHYARD_SOCKET, what `switchyard up` wrote down, that of
    the machine. While the service web is away, requests are tried again for patience seconds; wait, and logs and
    changes that follow, go on until it is back.
    """

    def __init__(
        self, address: Optional[str] = None, *, environ: Optional[Mapping[str, str]] = None, patience: float = PATIENCE_SECONDS
    ):
        self._questions = Questions(address, environ, patience)

    def about(self) -> About:
        """Which installation answers, and who asks."""
        return answered(self._questions.about())

    def submit(self, job: Union[Spec, Sequence[str]], *, id: str = "", **keys: Any) -> Job:
        """Submits a job, and returns its record once it is admitted.

        job is a command, which runs in the current folder with the current PATH, or a Spec, which is sent as it is.
        keys are further keys of docs/job-file.md. The same job under the same id is submitted once. Raises Refused if
        a key is wrong, Rejected if admission says no.
        """
        return answered(self._questions.submit(job, id, keys))

    def jobs(
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
        """The jobs, the newest first, with what the newest plan predicts. docs/web.md explains the filters."""
        return answered(
            self._questions.jobs(
                dict(user=user, state=state, name=name, project=project, label=label, array=array, rejected=rejected,
                     members=members, trials=trials, newest=newest, finished=finished)
            )
        )  # fmt: skip

    def job(self, job: JobRef) -> Job:
        """The record of a job, by its id, the beginning of its id, or its name. Raises NotFound."""
        return answered(self._questions.find(job))

    def describe(self, job: JobRef) -> Detail:
        """All that is known about a job."""
        return answered(self._questions.describe(job))

    def epochs(self, job: JobRef) -> List[Epoch]:
        """What a job has reported at the end of each epoch: loss, metrics, devices, seconds."""
        return answered(self._questions.epochs(job))

    def explain(self, job: JobRef) -> Text:
        """The same in sentences, as `switchyard describe` prints it."""
        return answered(self._questions.explain(job))

    def nodes(self) -> List[Node]:
        """The nodes, what is on them, and what keeps jobs off them."""
        return answered(self._questions.nodes())

    def wait(self, *jobs: JobRef, timeout: Optional[float] = None) -> List[Job]:
        """The records of jobs once all have ended. Raises Unfinished after timeout seconds."""
        return answered(self._questions.wait(jobs, timeout))

    def logs(self, job: JobRef, *, follow: bool = False, tail: Optional[int] = None) -> Iterator[str]:
        """The lines of a job's output, or the last ones. With follow it goes on until the job has ended."""
        return streamed(self._questions.logs(job, follow, tail))

    def cancel(self, *jobs: JobRef, reason: str = "") -> List[Job]:
        """Cancels jobs, and returns their records once they have ended."""
        return answered(self._questions.cancel(jobs, reason))

    def pause(self, job: JobRef, *, force: bool = False, reason: str = "") -> Job:
        """Makes a job leave at its next checkpoint. With force its processes end if they cannot be asked."""
        return answered(self._questions.want(job, "paused", reason, force=force))

    def resume(self, job: JobRef, *, reason: str = "") -> Job:
        """Continues a job that is paused, held, failed or cancelled, from its checkpoint."""
        return answered(self._questions.want(job, "run", reason))

    def hold(self, job: JobRef, *, reason: str = "") -> Job:
        """Keeps a job from being started."""
        return answered(self._questions.want(job, "held", reason))

    def requeue(self, job: JobRef, *, force: bool = False, reason: str = "") -> Job:
        """Makes a job leave at its next checkpoint and wait at the end of the queue."""
        return answered(self._questions.want(job, "run", reason, force=force, requeue=True))

    def set(self, job: JobRef, *, reason: str = "", **keys: Any) -> Job:
        """Gives keys of a job other values, as priority=80; None takes a value away."""
        return answered(self._questions.set(job, keys, reason))

    def results(self, job: JobRef) -> Results:
        """What a job has left: its record, its epochs and the list of its files."""
        return answered(self._questions.results(job))

    def fetch(self, job: JobRef, path: str, to: Union[str, "os.PathLike[str]"]) -> None:
        """Writes a file of a job, as results names it, to a path. It has that name once it is complete."""
        part = "%s.%d.part" % (os.fspath(to), os.getpid())
        try:
            with open(part, "wb") as out:
                for piece in streamed(self._questions.fetch(job, path)):
                    out.write(piece)
            os.replace(part, to)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise

    def changes(self, since: str = "") -> Iterator[Change]:
        """What changes from now on, or since the position of an earlier Change, until the caller stops asking."""
        return streamed(self._questions.changes(since))


def answered(question: Question[T]) -> T:
    """Answers a question."""
    try:
        with contextlib.closing(_Wire()) as wire:
            step = next(question)
            while True:
                step = advance(question, wire.do(step))
    except StopIteration as done:
        return cast(T, done.value)


def streamed(question: Question[None]) -> Iterator[Any]:
    """Answers a question that has several answers."""
    with contextlib.closing(question), contextlib.closing(_Wire()) as wire:
        try:
            step = next(question)
            while True:
                if isinstance(step, Give):
                    yield step.item
                    step = question.send(None)
                else:
                    step = advance(question, wire.do(step))
        except StopIteration:
            return


class _Wire:
    """Carries out steps on sockets, one connection at a time."""

    def __init__(self) -> None:
        self._connection: Optional[socket.socket] = None
        self._reader = Reader()
        self._early = b""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def do(self, step: Step) -> Outcome:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        if isinstance(step, Now):
            return time.monotonic()
        try:
            if isinstance(step, Next):
                return self._following(step.seconds)
            assert isinstance(step, (Ask, Open))
            self.close()
            return self._whole(step) if isinstance(step, Ask) else self._head(step)
        except socket.timeout:
            return Late("no answer in time")
        except Away as gone:
            return gone
        except (OSError, EOFError) as problem:
            return Away("the service web is away: %s; is `switchyard up` running?" % problem)

    def _whole(self, step: Ask) -> Answer:
        deadline = None if step.seconds is None else time.monotonic() + step.seconds
        self._send(step, step.seconds)
        body = []
        while not self._reader.ended:
            body.append(self._receive(None if deadline is None else deadline - time.monotonic()))
        self.close()
        return Answer(self._reader.status, self._reader.headers, b"".join(body))

    def _head(self, step: Open) -> Answer:
        self._send(step, None)
        while not self._reader.headed:
            self._early = self._receive(None)
        return Answer(self._reader.status, self._reader.headers, b"")

    def _following(self, seconds: Optional[float]) -> bytes:
        piece, self._early = self._early, b""
        while not piece and not self._reader.ended:
            piece = self._receive(seconds)
        return piece

    def _send(self, step: Union[Ask, Open], seconds: Optional[float]) -> None:
        self._reader, self._early = Reader(), b""
        self._connection = _connect(step.address, seconds)
        self._connection.sendall(step.request.encode(step.address.name, step.cookie))

    def _receive(self, seconds: Optional[float]) -> bytes:
        assert self._connection is not None
        if seconds is not None and seconds <= 0:
            raise socket.timeout
        self._connection.settimeout(seconds)
        return self._reader.feed(self._connection.recv(_PIECE))


def _connect(address: Address, seconds: Optional[float]) -> socket.socket:
    if not address.socket:
        connection = socket.create_connection((address.host, address.port), seconds)
        return ssl.create_default_context().wrap_socket(connection, server_hostname=address.host) if address.tls else connection
    with short_path(address.socket) as path:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(seconds)
            connection.connect(path)
        except BaseException:
            connection.close()
            raise
        return connection


@contextlib.contextmanager
def short_path(path: str) -> Iterator[str]:
    """A path to a socket through its folder: the kernel takes 107 bytes, and data folders may lie deeper."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        yield "/proc/self/fd/%d/%s" % (folder, os.path.basename(path))
    finally:
        os.close(folder)
