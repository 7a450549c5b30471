"""HTTP/1.1 without a connection: a request as bytes, and an answer read from bytes as they come.

Each request has a connection of its own, which the answer ends: over a Unix socket that costs less than to find out
whether an old connection still works.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional
from urllib.parse import quote, urlencode

from switchyard.client._errors import Away

_LONGEST_HEAD = 64 * 1024


class Request(NamedTuple):
    """A question, or a fact to store."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: Optional[Mapping[str, Any]] = None
    headers: Mapping[str, str] = {}

    def encode(self, host: str, cookie: str) -> bytes:
        """The request as it goes over a connection."""
        target = quote(self.path) + ("?" + urlencode(self.query) if self.query else "")
        body = b"" if self.body is None else json.dumps(self.body, allow_nan=False).encode()
        headers = {"Host": host, "Connection": "close", "Accept-Encoding": "identity"}
        if self.method != "GET":
            headers["Content-Length"] = str(len(body))
        if self.body is not None:
            headers["Content-Type"] = "application/json"
        if cookie:
            headers["Cookie"] = cookie
        headers.update(self.headers)
        lines = ["%s %s HTTP/1.1" % (self.method, target)] + ["%s: %s" % pair for pair in headers.items()]
        return "\r\n".join(lines + ["", ""]).encode("latin-1") + body


class Answer(NamedTuple):
    """An answer. The names of its headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body; raises Away if it is no JSON, as of something else that answers there."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise Away("an answer with the status %d is no JSON: is this the service web?" % self.status) from None


class Reader:
    """Reads one answer. ``headed`` is set once ``status`` and ``headers`` are known, ``ended`` once it is complete."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Dict[str, str] = {}
        self.headed = False
        self.ended = False
        self._buffer = b""
        self._left = 0
        self._next: Callable[[], Optional[bytes]] = self._head

    def feed(self, data: bytes) -> bytes:
        """Takes what has come, b"" if the other end has closed, and returns what it adds to the body."""
        if not data:
            if self._next == self._rest:
                self.ended = True
            if not self.ended:
                raise Away("the service web went away in the middle of an answer")
            return b""
        self._buffer += data
        pieces = []
        while not self.ended:
            piece = self._next()
            if piece is None:
                break
            pieces.append(piece)
        return b"".join(pieces)

    # Each state returns what it adds to the body, or None if it needs more bytes.

    def _head(self) -> Optional[bytes]:
        head, whole, rest = self._buffer.partition(b"\r\n\r\n")
        if not whole:
            if len(head) > _LONGEST_HEAD:
                raise Away("what answers is no HTTP: is this the service web?")
            return None
        self._buffer = rest
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1.") or not status[:3].isdigit():
            raise Away("what answers is no HTTP: is this the service web?")
        self.status = int(status[:3])
        if self.status < 200:
            return b""  # the answer itself follows
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.headed = True
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            self._next = self._size
        elif "content-length" in self.headers:
            self._left = int(self.headers["content-length"])
            self._next = self._fixed
        elif self.status in (204, 304):
            self.ended = True
        else:
            self._next = self._rest
        return b""

    def _take(self) -> Optional[bytes]:
        if not self._buffer:
            return None
        piece, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
        self._left -= len(piece)
        return piece

    def _fixed(self) -> Optional[bytes]:
        if self._left == 0:
            self.ended = True
            return b""
        return self._take()

    def _rest(self) -> Optional[bytes]:
        piece, self._buffer = self._buffer, b""
        return piece or None

    def _line(self) -> Optional[bytes]:
        line, whole, rest = self._buffer.partition(b"\r\n")
        if not whole:
            return None
        self._buffer = rest
        return line

    def _size(self) -> Optional[bytes]:
        line = self._line()
        if line is None:
            return None
        self._left = int(line.split(b";")[0], 16)
        self._next = self._chunk if self._left else self._trailer
        return b""

    def _chunk(self) -> Optional[bytes]:
        if self._left == 0:
            self._next = self._chunk_end
            return b""
        return self._take()

    def _chunk_end(self) -> Optional[bytes]:
        if self._line() is None:
            return None
        self._next = self._size
        return b""

    def _trailer(self) -> Optional[bytes]:
        line = self._line()
        if line is None:
            return None
        self.ended = not line
        return b""
