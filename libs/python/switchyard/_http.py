"""The road to the job API: one short request at a time, and never a reason for training to stop.

A server that is away costs a training loop at most one timeout per back-off period. This module decides
when to try and when to skip; what is said, and in which order, is its callers' business.
"""

import http.client
import json
import re
import socket
import sys
import threading
import time
from typing import Any, Mapping, NamedTuple, Optional
from urllib.parse import quote, urlsplit

TIMEOUT_SECONDS = 2.0
FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 30.0
SECONDS_BETWEEN_COMPLAINTS = 30.0
LONGEST_ANSWER_BYTES = 64 * 1024
# The capability of a job and the token of an attempt, which are parts of addresses.
_SECRET = re.compile(r"[0-9a-f]{64}")


class Address(NamedTuple):
    """Where a job API listens: TCP (host, port) or a Unix socket, and the prefix of every path."""

    host: str
    port: int
    socket_path: str
    prefix: str

    @classmethod
    def parse(cls, text: str, prefix: str = "") -> "Address":
        """Reads ``http://host:port/prefix``, ``host:port``, ``host`` or ``unix:///path/job.sock``.

        Raises ValueError for any other scheme and for a port that is not a number.
        """
        if text.startswith("unix://"):
            return cls("localhost", 0, text[len("unix://") :], _clean_prefix(prefix))
        parts = urlsplit(text if "://" in text else "http://" + text)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError("job API address %r: want http://host:port, host:port or unix:///path" % text)
        return cls(parts.hostname, parts.port or 80, "", _clean_prefix(parts.path or prefix))


def address_from_environment(environ: Mapping[str, str]) -> Optional[Address]:
    """The address of this attempt, or None outside of Switchyard."""
    prefix = environ.get("SWITCHYARD_JOB_API_PREFIX", "")
    url = environ.get("SWITCHYARD_JOB_API", "")
    if not url and environ.get("SWITCHYARD_JOB_SOCKET"):
        url = "unix://" + environ["SWITCHYARD_JOB_SOCKET"]
    if not url:
        return None
    try:
        return Address.parse(url, prefix)
    except ValueError as problem:
        complain(str(problem) + "; training goes on without reporting")
        return None


class Answer(NamedTuple):
    """What a server said. ``error`` is its own explanation when it refused."""

    status: int
    body: bytes
    error: str

    @property
    def ok(self) -> bool:
        """Whether the request was accepted."""
        return 200 <= self.status < 300

    @property
    def retryable(self) -> bool:
        """Whether the same request may be accepted later: the server, not the request, was at fault."""
        return self.status >= 500 or self.status in (404, 408, 429)


class Client:
    """Requests to one address, with a shared back-off. Safe for use by several threads.

    ``fenced`` turns true, for good, when the server says that this attempt was replaced by a newer one.
    """

    def __init__(self, address: Address):
        self._address = address
        self._lock = threading.Lock()
        self._backoff_seconds = 0.0
        self._retry_at = 0.0
        self._complain_at = 0.0
        self.fenced = False

    def seconds_until_retry(self) -> float:
        """How long requests will still be skipped; 0 when the next one will be sent."""
        with self._lock:
            return max(0.0, self._retry_at - time.monotonic())

    def get(self, path: str, insist: bool = False) -> Optional[Answer]:
        """GET; see request."""
        return self.request("GET", path, None, insist)

    def post(self, path: str, body: Any, insist: bool = False) -> Optional[Answer]:
        """POST of body as JSON; see request."""
        return self.request("POST", path, json.dumps(body, allow_nan=False).encode(), insist)

    def request(self, method: str, path: str, body: Optional[bytes], insist: bool) -> Optional[Answer]:
        """One request. None: it was skipped (backing off or fenced) or nobody answered.

        ``insist`` sends it in the middle of a back-off too: for the few that have no later chance.
        """
        if self.fenced or (not insist and self.seconds_until_retry() > 0):
            return None
        try:
            answer = self._exchange(method, path, body)
        except (OSError, http.client.HTTPException) as problem:
            self._failed("%s %s: %s" % (method, path, problem or type(problem).__name__))
            return None
        if answer.status == 409:
            self._fence(answer)
        elif answer.retryable:
            self._failed("%s %s: %d %s" % (method, path, answer.status, answer.error))
        else:
            self._succeeded()
            if not answer.ok:
                complain("%s %s was refused: %d %s" % (method, path, answer.status, answer.error))
        return answer

    def _exchange(self, method: str, path: str, body: Optional[bytes]) -> Answer:
        connection = _connection(self._address)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, self._address.prefix + path, body=body, headers=headers)
            response = connection.getresponse()
            content = response.read(LONGEST_ANSWER_BYTES)
            ok = 200 <= response.status < 300
            return Answer(response.status, content, "" if ok else _explanation(content))
        finally:
            connection.close()

    def _succeeded(self) -> None:
        with self._lock:
            self._backoff_seconds = 0.0
            self._retry_at = 0.0

    def _failed(self, what: str) -> None:
        now = time.monotonic()
        with self._lock:
            self._backoff_seconds = min(
                LONGEST_BACKOFF_SECONDS, max(FIRST_BACKOFF_SECONDS, 2 * self._backoff_seconds)
            )
            self._retry_at = now + self._backoff_seconds
            quiet = now < self._complain_at
            if not quiet:
                self._complain_at = now + SECONDS_BETWEEN_COMPLAINTS
        if not quiet:
            complain("cannot reach the scheduler: %s; training goes on" % what)

    def _fence(self, answer: Answer) -> None:
        with self._lock:
            already, self.fenced = self.fenced, True
        if not already:
            complain("this attempt was replaced by a newer one and no longer reports: %s" % answer.error)


def segment(text: str) -> str:
    """text as one segment of a path."""
    return quote(text, safe="")


def complain(text: str) -> None:
    """Says text on stderr: the job's log is where its owner looks. Others read it too, so it shows no secrets."""
    print("[switchyard] " + _SECRET.sub("(secret)", text), file=sys.stderr, flush=True)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str):
        super().__init__("localhost", timeout=TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connection(address: Address) -> http.client.HTTPConnection:
    if address.socket_path:
        return _UnixConnection(address.socket_path)
    return http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT_SECONDS)


def _clean_prefix(prefix: str) -> str:
    prefix = prefix.strip("/")
    return "/" + prefix if prefix else ""


def _explanation(content: bytes) -> str:
    """The server's {"error":{"message","hint"}} as one line, or whatever it sent instead."""
    try:
        error = json.loads(content)["error"]
        return "; ".join(str(error[key]) for key in ("message", "hint") if error.get(key))
    except (ValueError, KeyError, TypeError, AttributeError):
        return content[:200].decode("utf-8", "replace").strip()
