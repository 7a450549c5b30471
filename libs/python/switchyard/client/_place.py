"""Where the service web is: what the caller names, else the environment, else what `switchyard up` wrote down."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import List, Mapping, NamedTuple, Optional
from urllib.parse import urlsplit

from switchyard.client._errors import Error

_SHARED_SOCKET = "/run/switchyard/web.sock"
_DEFAULT_BUS = "nats://127.0.0.1:4222"


class Address(NamedTuple):
    """A Unix socket, or a host and a port. ``token`` is that of a link that logs its user in."""

    socket: str = ""
    host: str = "switchyard"
    port: int = 0
    tls: bool = False
    token: str = ""

    def __str__(self) -> str:
        if self.socket:
            return self.socket
        return "%s://%s" % ("https" if self.tls else "http", self.name)

    @property
    def name(self) -> str:
        """The Host of a request."""
        host = "[%s]" % self.host if ":" in self.host else self.host
        return "%s:%d" % (host, self.port) if self.port else host

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Reads the path of a socket, or a URL such as the link that `switchyard open` prints."""
        if "://" not in text:
            return cls(socket=os.path.abspath(os.path.expanduser(text)))
        url = urlsplit(text)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise Error("address %r: want the path of a socket, or a URL as `switchyard open` prints it" % text)
        tls = url.scheme == "https"
        token = url.fragment[len("login=") :] if url.fragment.startswith("login=") else ""
        return cls("", url.hostname, url.port or (443 if tls else 80), tls, token)


class Candidate(NamedTuple):
    """A place to ask. It counts only if it serves the bus, where one is named."""

    address: Address
    bus: str = ""


def candidates(address: Optional[str], environ: Mapping[str, str]) -> List[Candidate]:
    """The places to ask, the first that answers counts: the order is that of the command line."""
    if address:
        return [Candidate(Address.parse(address))]
    if environ.get("SWITCHYARD_SOCKET"):
        return [Candidate(Address.parse(environ["SWITCHYARD_SOCKET"]))]
    found = []
    bus = environ.get("SWITCHYARD_NATS", "")
    context = _context(environ)
    if context.get("data_dir"):
        socket = os.path.join(context["data_dir"], "web.sock")
        found.append(Candidate(Address(socket), bus or context.get("nats", _DEFAULT_BUS)))
    # An installation of one's own that runs is meant, also while its service web is away.
    if not bus and not _lives(context.get("pid", "")):
        found.append(Candidate(Address(_SHARED_SOCKET)))
    return found


def _context(environ: Mapping[str, str]) -> Mapping[str, str]:
    path = Path(environ.get("SWITCHYARD_CONTEXT") or os.path.join(_data_dir(environ), "context.json"))
    try:
        context = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {key: str(value) for key, value in context.items()}


def _lives(pid: str) -> bool:
    if not pid.isdigit() or int(pid) == 0:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it is another user's
    return True


def _data_dir(environ: Mapping[str, str]) -> str:
    state = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):
        return os.path.join(state, "switchyard")
    home = environ.get("HOME", "")
    if os.path.isabs(home):
        return os.path.join(home, ".local", "state", "switchyard")
    return os.path.join(tempfile.gettempdir(), "switchyard")
