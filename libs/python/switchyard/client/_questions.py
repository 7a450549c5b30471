"""What can be asked of an installation, and how: paths, retries, waiting, decoding. Both forms of the client run these."""

from __future__ import annotations

import base64
import getpass
import json
import os
import secrets
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union, cast

from switchyard.client import _steps
from switchyard.client._errors import Away, Error, Late, Refused, Rejected, Unfinished, reason_text, refusal
from switchyard.client._http import Answer, Request
from switchyard.client._place import Address, candidates
from switchyard.client._records import (
    About, Accepted, Changes, Detail, Epoch, Epochs, FileAnswer, Held, Job, LogChunk, Node, Page, Problem, Spec, Standing, Text, ViewJob,
)  # fmt: skip
from switchyard.client._steps import Question
from switchyard.client._submission import new_id, submission

PREFIX = "/api/v1"
# A service that starts again is away for some seconds.
PATIENCE_SECONDS = 10.0
# Admission answers at once, but on a busy machine.
ADMISSION_SECONDS = 30.0
# The register shows what is wanted of a job at once.
REGISTER_SECONDS = 10.0
CANCEL_SECONDS = 30.0
_PROBE_SECONDS = 1.0
_AWAY_PAUSE = 0.2
_LOG_PAUSE = 0.3
# The service answers a question that waits within 20 s, and a stream says something every 15 s.
_LONGEST_ANSWER = 60.0
_LIST_LIMIT = 10_000

ENDED = ("succeeded", "failed", "cancelled", "rejected")

JobRef = Union[str, Job, ViewJob]


class Change(NamedTuple):
    """What has changed. ``reload`` says that changes before it are forgotten: load what you show again."""

    position: str
    reload: bool
    changes: Changes


class Results(NamedTuple):
    """What a job has left: its record, what it reported at the end of each epoch, and its files, the newest first."""

    job: Job
    epochs: List[Epoch]
    files: FileAnswer


def ref(job: JobRef) -> str:
    """The id of a record, or what a person calls a job: its id, the beginning of its id, or its name."""
    return job if isinstance(job, str) else job["id"]


class Questions:
    """Questions to one installation. It is found at the first question, and stays the same then."""

    def __init__(self, address: Optional[str], environ: Optional[Mapping[str, str]], patience: float):
        self._environ = dict(os.environ if environ is None else environ)
        self._named = address
        self._patience = patience
        self._found: Optional[Address] = None
        self._cookie = ""
        self._user = getpass.getuser()

    # Where it is.

    def _find(self) -> Question[Address]:
        if self._found is None:
            places = candidates(self._named, self._environ)
            for place in places:
                try:
                    if (yield from self._serves(place.address, place.bus)):
                        self._found = place.address
                        return place.address
                except (Away, Late):
                    continue
            where = ", nor at ".join(str(place.address) for place in places) or "any known place"
            raise Away(
                "no service web answers at %s; start `switchyard up`, or name the socket or the link of another "
                "installation in Yard(...) or SWITCHYARD_SOCKET" % where
            )
        return self._found

    def _serves(self, address: Address, bus: str) -> Question[bool]:
        if address.token:
            yield from self._log_in(address)
        answer = yield from _steps.ask(_steps.Ask(address, Request("GET", PREFIX), self._cookie, _PROBE_SECONDS))
        if answer.status >= 400:
            raise refusal(_problem(answer))
        about = cast(About, answer.json())
        return not bus or about["bus"] == bus

    def _log_in(self, address: Address) -> Question[None]:
        request = Request("POST", PREFIX + "/session", body={"token": address.token})
        answer = yield from _steps.ask(_steps.Ask(address, request))
        if answer.status >= 400:
            raise refusal(_problem(answer))
        self._cookie = answer.headers.get("set-cookie", "").partition(";")[0]

    # Asking.

    def ask(self, request: Request, patience: Optional[float] = None, seconds: Optional[float] = None) -> Question[Answer]:
        """The answer to a request that may be sent twice. While nobody answers it is sent again, as long as patience
        says; one that came too early is sent when it may be. What is no success is raised."""
        address = yield from self._find()
        began = yield from _steps.now()
        patience = self._patience if patience is None else patience
        while True:
            try:
                limit = _LONGEST_ANSWER if seconds is None else max(seconds, 0.0)
                answer = yield from _steps.ask(_steps.Ask(address, request, self._cookie, limit))
            except (Away, Late) as gone:
                if (isinstance(gone, Late) and seconds is not None) or (yield from _steps.now()) - began >= patience:
                    raise
                yield from _steps.pause(_AWAY_PAUSE)
                continue
            if answer.status < 400:
                return answer
            problem = _problem(answer)
            if answer.status == 429:
                yield from _steps.pause(_retry_after(answer, problem))
            elif answer.status == 503 and request.method == "POST" and (yield from _steps.now()) - began < patience:
                yield from _steps.pause(_AWAY_PAUSE)
            else:
                raise refusal(problem)

    def _get(self, path: str, query: Optional[Mapping[str, object]] = None) -> Question[Any]:
        answer = yield from self.ask(Request("GET", PREFIX + path, _query(query or {})))
        return answer.json()

    def _post(self, job: str, fact: str, body: Mapping[str, Any], key: str = "") -> Question[Accepted]:
        """Stores a fact: once, however often it is sent."""
        headers = {"Idempotency-Key": key} if key else {}
        answer = yield from self.ask(Request("POST", "%s/jobs/%s/%s" % (PREFIX, job, fact), {}, body, headers))
        return cast(Accepted, answer.json())

    # What is known.

    def about(self) -> Question[About]:
        return cast(About, (yield from self._get("")))

    def jobs(self, filters: Mapping[str, object]) -> Question[List[ViewJob]]:
        query = dict(filters, limit=_LIST_LIMIT)
        found: List[ViewJob] = []
        while True:
            page = cast(Page, (yield from self._get("/jobs", query)))
            found.extend(page["jobs"])
            if not page.get("next"):
                return found
            query["after"] = page["next"]

    def nodes(self) -> Question[List[Node]]:
        query: Dict[str, object] = {}
        found: List[Node] = []
        while True:
            page = yield from self._get("/nodes", query)
            found.extend(page["items"])
            if not page.get("next"):
                return found
            query["after"] = page["next"]

    def describe(self, job: JobRef) -> Question[Detail]:
        return cast(Detail, (yield from self._get("/jobs/" + ref(job), self._as_user(job))))

    def epochs(self, job: JobRef) -> Question[List[Epoch]]:
        query = dict(self._as_user(job), after=0)
        found: List[Epoch] = []
        while True:
            page = cast(Epochs, (yield from self._get("/jobs/%s/epochs" % ref(job), query)))
            found.extend(page["epochs"])
            if not page.get("next"):
                return found
            query["after"] = page["next"]

    def explain(self, job: JobRef) -> Question[Text]:
        return cast(Text, (yield from self._get("/jobs/%s/explanation" % ref(job), self._as_user(job))))

    def standing(self, job: JobRef) -> Question[Standing]:
        return cast(Standing, (yield from self._get("/jobs/%s/standing" % ref(job), self._as_user(job))))

    def find(self, job: JobRef) -> Question[Job]:
        return (yield from self.standing(job))["job"]

    def _as_user(self, job: JobRef) -> Mapping[str, object]:
        # A name means the newest job of this user first.
        return {"user": self._user} if isinstance(job, str) else {}

    # Waiting.

    def follow(
        self, ids: Sequence[str], until: Callable[[Job], bool], timeout: Optional[float], enough: Optional[int] = None
    ) -> Question[Dict[str, Job]]:
        """The newest records of jobs, once all of them, or enough, have been as until says. Raises Late. It waits while
        the service is away: the jobs go on."""
        began = yield from _steps.now()
        open_ids, since = list(ids), ""
        last: Dict[str, Job] = {}
        while len(ids) - len(open_ids) < (len(ids) if enough is None else enough):
            query = {"id": ",".join(ids)}
            if since:
                query["since"] = since
            left = None if timeout is None else timeout - ((yield from _steps.now()) - began)
            if left is not None and left <= 0:
                raise _LateWith(last)
            try:
                answer = yield from self.ask(Request("GET", PREFIX + "/records", query), float("inf") if left is None else left, left)
            except (Away, Late):
                raise _LateWith(last) from None
            since = answer.headers.get("last-event-id", "")
            for job in cast(Held, answer.json())["jobs"]:
                last[job["id"]] = job
                if until(job) and job["id"] in open_ids:
                    open_ids.remove(job["id"])
        return last

    def wait(self, jobs: Sequence[JobRef], timeout: Optional[float]) -> Question[List[Job]]:
        records = []
        for job in jobs:
            records.append((yield from self.find(job)))
        last = {record["id"]: record for record in records}
        ids = [id for id, record in last.items() if record["state"] not in ENDED]
        try:
            last.update((yield from self.follow(ids, lambda job: job["state"] in ENDED, timeout)))
        except _LateWith as late:
            last.update(late.last)
            left = sum(record["state"] not in ENDED for record in last.values())
            message = "%d of %d jobs had not ended after %g s" % (left, len(last), timeout or 0)
            raise Unfinished(message, [last[record["id"]] for record in records]) from None
        return [last[record["id"]] for record in records]

    def _shown(self, id: str, until: Callable[[Job], bool], seconds: float, what: str) -> Question[Job]:
        """The record of a job once it shows what was asked for."""
        try:
            return (yield from self.follow([id], until, seconds))[id]
        except _LateWith as late:
            message = "job %s: %s in %g s; the request is stored and will be followed: is the admission service running?"
            raise Unfinished(message % (id, what, seconds), list(late.last.values())) from None

    # What people want.

    def submit(self, job: Union[Spec, Sequence[str]], id: str, keys: Mapping[str, Any]) -> Question[Job]:
        spec = submission(job, keys, self._environ)
        id = id or new_id(spec["name"])
        yield from self._post(id, "submitted", spec)
        record = yield from self._shown(id, lambda job: job["state"] != "submitted", ADMISSION_SECONDS, "no answer from admission")
        if record["state"] == "rejected":
            raise Rejected(record)
        return record

    def cancel(self, jobs: Sequence[JobRef], reason: str) -> Question[List[Job]]:
        records = []
        for job in jobs:
            record = yield from self.find(job)
            records.append(record)
            if record["state"] not in ENDED:
                # A repeated request counts once in each life of a job.
                life = str(record.get("resumed", 0))
                yield from self._post(record["id"], "cancel_requested", _given(by=self._user, reason=reason), life)
        return (yield from self.wait(records, CANCEL_SECONDS))

    def want(self, job: JobRef, state: str, reason: str, force: bool = False, requeue: bool = False) -> Question[Job]:
        before = yield from self.find(job)
        if before["state"] in ENDED and not (state == "run" and not requeue and before["state"] in ("failed", "cancelled")):
            raise Error("job %s has ended: %s" % (before["id"], before["state"]))
        withheld = before.get("wanted")
        if requeue and withheld and withheld["state"] in ("held", "paused"):  # only its place in the queue changes
            state, force = withheld["state"], force or withheld.get("force", False)
        wish = _given(state=state, by=self._user, reason=reason, force=force, requeue=requeue)
        yield from self._post(before["id"], "wanted", wish, secrets.token_hex(8))

        def follows(now: Job) -> bool:
            if now["state"] in ENDED:
                return before["state"] not in ENDED  # it has ended meanwhile
            wanted = now.get("wanted")
            again = now.get("requeued_at", "") > before.get("requeued_at", "")
            return (wanted["state"] if wanted else "run") == state and (again or not requeue)

        return (yield from self._shown(before["id"], follows, REGISTER_SECONDS, "the register does not show what is wanted"))

    def set(self, job: JobRef, keys: Mapping[str, Any], reason: str) -> Question[Job]:
        record = yield from self.find(job)
        request = secrets.token_hex(8)
        edit = {
            "set": {key: value for key, value in keys.items() if value is not None},
            "unset": [key for key, value in keys.items() if value is None],
        }
        yield from self._post(record["id"], "edit_requested", _given(id=request, by=self._user, reason=reason, **edit), request)

        def answered(now: Job) -> bool:
            return any(edit.get("id") == request for edit in now.get("edits", []))

        after = yield from self._shown(record["id"], answered, REGISTER_SECONDS, "no answer to the edit")
        refused = [r for edit in after.get("edits", []) if edit.get("id") == request for r in edit.get("refused", [])]
        if refused:
            raise Error("job %s stays as it is:\n  %s" % (after["id"], "\n  ".join(map(reason_text, refused))))
        return after

    # Output and files.

    def logs(self, job: JobRef, follow: bool, tail: Optional[int]) -> Question[None]:
        """Gives the lines of a job's output."""
        record = yield from self.find(job)
        if record["spec"].get("array"):
            raise Error("%s is an array of jobs: name one of them, as %s/0" % (record["id"], record["id"]))
        node = yield from self._home(record, follow)
        if not node:
            return
        lines = _Lines()
        if tail is not None:
            data, offset = yield from self._tail(node, record["id"], tail)
            for line in lines.feed(data):
                yield from _steps.give(line)
        else:
            offset = 0
        if follow or tail is None:
            yield from self._copy(node, record["id"], offset, follow, lines)
        for line in lines.rest():
            yield from _steps.give(line)

    def _copy(self, node: str, id: str, offset: int, follow: bool, lines: "_Lines") -> Question[None]:
        end = -1
        while True:
            try:
                chunk = yield from self._chunk(node, id, offset, float("inf") if follow else None)
            except Refused as problem:
                if not follow or problem.status != 503:
                    raise
                yield from _steps.pause(_LOG_PAUSE)  # its node is away
                continue
            data = _bytes(chunk.get("data"))
            for line in lines.feed(data, chunk.get("cut", False)):
                yield from _steps.give(line)
            moved, offset = chunk["next"] > offset, max(chunk["next"], offset)
            end = chunk["size"] if end < 0 else end
            if not follow and (not moved or offset >= end):
                return
            if follow and chunk.get("ended") and (yield from self.find(id))["state"] in ENDED:
                return
            if not moved or chunk.get("ended"):
                yield from _steps.pause(_LOG_PAUSE)

    def _home(self, record: Job, follow: bool) -> Question[str]:
        """The node that has the output of a job; empty if it has none and is not to be waited for."""
        while True:
            standing = yield from self.standing(record)
            if standing.get("home"):
                return standing["home"]
            if not follow or standing["job"]["state"] in ENDED:
                return ""
            state = standing["job"]["state"]
            yield from self.follow([record["id"]], lambda job: job["state"] != state, None)

    def _chunk(self, node: str, id: str, offset: int, patience: Optional[float]) -> Question[LogChunk]:
        query = {"job": id, "offset": str(offset)}
        answer = yield from self.ask(Request("GET", "%s/nodes/%s/log" % (PREFIX, node), query), patience)
        return cast(LogChunk, answer.json())

    def _tail(self, node: str, id: str, count: int) -> Question[Tuple[bytes, int]]:
        """The last lines, and the offset behind them."""
        window = 32 * 1024
        while True:
            chunk = yield from self._chunk(node, id, -window, None)
            size, data = chunk["size"], _bytes(chunk.get("data"))
            while chunk["next"] < size and chunk["data"]:
                chunk = yield from self._chunk(node, id, chunk["next"], None)
                data += _bytes(chunk.get("data"))
            lines = data.splitlines(keepends=True)
            if len(lines) > count or window >= size:
                return b"".join(lines[len(lines) - min(count, len(lines)) :]), chunk["next"]
            window *= 4

    def results(self, job: JobRef) -> Question[Results]:
        standing = yield from self.standing(job)
        epochs = yield from self.epochs(standing["job"])
        return Results(standing["job"], epochs, (yield from self._files(standing, "", 0)))

    def fetch(self, job: JobRef, path: str) -> Question[None]:
        """Gives a file piece by piece."""
        standing = yield from self.standing(job)
        size, offset = -1, 0
        while offset != size:
            answer = yield from self._files(standing, path, offset)
            size = answer.get("size", 0) if size < 0 else size
            data = _bytes(answer.get("data"))[: size - offset]
            offset += len(data)
            if answer.get("size", 0) < size or (not data and offset < size):
                raise Error("%s of job %s changed while it was fetched: try again" % (path, standing["job"]["id"]))
            yield from _steps.give(data)

    def _files(self, standing: Standing, path: str, offset: int) -> Question[FileAnswer]:
        id = standing["job"]["id"]
        if standing.get("pods"):
            raise Error("job %s ran as pods, whose files stay in their volumes: look below its snapshots_dir" % id)
        if not standing.get("home"):
            raise Error("job %s has not started: it has no files" % id)
        query = {"job": id, "path": path, "offset": offset}
        return cast(FileAnswer, (yield from self._get("/nodes/%s/files" % standing["home"], query)))

    # Changes.

    def changes(self, since: str) -> Question[None]:
        """Gives each Change. When the stream is cut off it goes on where it was."""
        address = yield from self._find()
        position = since
        while True:
            headers = {"Last-Event-ID": position} if position else {}
            try:
                answer = yield from _steps.ask(_steps.Open(address, Request("GET", PREFIX + "/changes", headers=headers), self._cookie))
                if answer.status >= 400:
                    yield from self.ask(Request("GET", PREFIX))  # says why, or that it works again
                events = _Events()
                while True:
                    data = yield from _steps.following(_LONGEST_ANSWER)
                    if not data:
                        break
                    for name, position, text in events.feed(data):
                        reload = name == "reload"
                        yield from _steps.give(Change(position, reload, Changes() if reload else json.loads(text)))
            except (Away, Late):
                pass
            yield from _steps.pause(_AWAY_PAUSE)


class _LateWith(Late):
    """The time has passed; ``last`` are the records that are known."""

    def __init__(self, last: Mapping[str, Job]):
        super().__init__("the time has passed")
        self.last = last


class _Lines:
    """Lines of output, whose ends come in other pieces than their beginnings."""

    def __init__(self) -> None:
        self._begun = b""

    def feed(self, data: bytes, cut: bool = False) -> Iterable[str]:
        """The lines that are complete. What follows a gap (cut) begins a line."""
        if cut and self._begun:
            data = b"\n" + data
        *whole, self._begun = (self._begun + data).split(b"\n")
        return [_line(line) for line in whole]

    def rest(self) -> Iterable[str]:
        """The last line, if it has no end."""
        return [_line(self._begun)] if self._begun else []


def _bytes(text: Optional[str]) -> bytes:
    return base64.b64decode(text or "")  # no bytes at all are null


def _line(data: bytes) -> str:
    return data.decode("utf-8", "replace").rstrip("\r")


class _Events:
    """Reads server-sent events."""

    def __init__(self) -> None:
        self._begun = b""

    def feed(self, data: bytes) -> Iterable[Tuple[str, str, str]]:
        """The name, the id and the data of each event that is complete."""
        *whole, self._begun = (self._begun + data).split(b"\n\n")
        for block in whole:
            fields = dict(line.partition(": ")[::2] for line in block.decode().split("\n") if line[:1] != ":")
            if "data" in fields:
                yield fields.get("event", ""), fields.get("id", ""), fields["data"]


def _given(**values: Any) -> Dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def _query(values: Mapping[str, object]) -> Dict[str, str]:
    """Values as the parameters of a URL: what is None is left out."""
    return {name: _word(value) for name, value in values.items() if value is not None}


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join("%s=%s" % pair for pair in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def _problem(answer: Answer) -> Problem:
    """The body of an answer that is no success. A proxy in front has no problems to tell."""
    try:
        problem = json.loads(answer.body)
        return cast(Problem, dict(problem, title=problem["title"], status=answer.status, detail=problem["detail"]))
    except (ValueError, KeyError, TypeError):
        text = answer.body[:200].decode("utf-8", "replace").strip()
        return {"title": "status %d" % answer.status, "status": answer.status, "detail": text or "no explanation"}


def _retry_after(answer: Answer, problem: Problem) -> float:
    told = answer.headers.get("retry-after", "")
    return max(float(told) if told.isdigit() else problem.get("retry_after_seconds", 1), 0.1)
