"""A job API for tests: a real HTTP server on a free port of 127.0.0.1 that records what it is told."""

import contextlib
import http.server
import json
import os
import socketserver
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence
from unittest import mock

from switchyard import _http

LIBRARY = Path(__file__).resolve().parent.parent
EXAMPLES = LIBRARY.parent.parent / "examples"
UUID = "job-1"
PATIENCE_SECONDS = 60.0


class Request(NamedTuple):
    """One request as it arrived."""

    method: str
    path: str
    content_type: Optional[str]
    body: Any
    text: str

    @property
    def call(self) -> str:
        """The last two segments of the path without its query: enough to tell requests apart."""
        return "/".join(self.path.split("?")[0].split("/")[-2:])


class JobAPI:
    """The server. Change ``answer`` to say something else than a willing job API would."""

    def __init__(self, server: socketserver.BaseServer, url: str, port: int):
        self.url = url
        self.port = port
        self.requests: List[Request] = []
        self.control: Dict[str, Any] = {"stop": False, "micro_batch": None, "accumulation": None, "generation": 1}
        self.wish: Dict[str, Any] = {}
        self.has_to_stop: Callable[[], bytes] = lambda: b"0"
        self.status = 200
        self.hold_from: Callable[[List[str]], bool] = lambda calls: False
        self.gate = threading.Event()
        self.gate.set()
        self._server = server
        self._arrived = threading.Condition()

    def record(self, request: Request) -> None:
        with self._arrived:
            self.requests.append(request)
            if self.hold_from(self.calls()):
                self.gate.clear()
            self._arrived.notify_all()

    def wait_for(self, count: int) -> None:
        """Until count requests have arrived."""
        self._wait(lambda: len(self.requests) >= count, "%d requests" % count)

    def wait_until_held(self) -> None:
        """Until a request has arrived from which on answers are held back."""
        self._wait(lambda: not self.gate.is_set(), "the request to hold")

    def _wait(self, arrived: Callable[[], bool], what: str) -> None:
        with self._arrived:
            if not self._arrived.wait_for(arrived, PATIENCE_SECONDS):
                raise AssertionError("%s: only %s arrived" % (what, self.calls()))

    def bodies(self, last_segment: str) -> List[Any]:
        """The bodies of the requests whose path ends in last_segment."""
        return [request.body for request in self.requests if request.path.split("?")[0].endswith("/" + last_segment)]

    def calls(self) -> List[str]:
        """Method and end of the path of each request."""
        return ["%s %s" % (request.method, request.call) for request in self.requests]

    def close(self) -> None:
        """Stops listening: from now on connections are refused."""
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    api: JobAPI

    def address_string(self) -> str:
        return "test"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        body = json.loads(text, parse_constant=_refuse_constant) if text else None
        self.api.record(Request(self.command, self.path, self.headers.get("Content-Type"), body, text))
        self.api.gate.wait(PATIENCE_SECONDS)
        content = b'{"error":{"code":"test","message":"no","hint":"look"}}'
        if self.api.status == 200:
            content = b"{}"
            if "/has_to_stop/" in self.path:
                content = self.api.has_to_stop()
            elif self.path.split("?")[0].endswith("/control"):
                content = json.dumps(self.api.control).encode()
            elif self.path.endswith("/steps"):
                content = json.dumps(self.api.wish).encode()
        with contextlib.suppress(OSError):
            self.send_response(self.api.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)


def _refuse_constant(name: str) -> None:
    raise AssertionError("%s was sent" % name)


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextlib.contextmanager
def serve(socket_path: str = "", port: int = 0) -> Iterator[JobAPI]:
    """A running JobAPI, on TCP or, given a path, on a Unix socket."""
    handler = type("Handler", (_Handler,), {})
    server: socketserver.BaseServer
    if socket_path:
        server, url, port = _UnixServer(socket_path, handler), "unix://" + socket_path, 0
    else:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
        port = server.server_address[1]
        url = "http://127.0.0.1:%d/attempt/t0k3n" % port
    api = JobAPI(server, url, port)
    handler.api = api
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        # A busy machine must not look like a server that is away.
        with mock.patch.object(_http, "TIMEOUT_SECONDS", PATIENCE_SECONDS):
            yield api
    finally:
        api.close()
        thread.join()


def variables(snapshots: str, **changes: Any) -> Dict[str, str]:
    """The environment of a job of 3 epochs of 4 steps, without an address of a job API."""
    table = {
        "JOB_UUID": UUID, "JOB_RESTARTED": "FALSE", "EPOCHS_DONE": 0, "EPOCHS_TO_BE_DONE": 3, "HEARTBEAT_FREQ": 3,
        "NODELIST": "nodeA,nodeB", "NUM_GPUS": 2, "NUM_NODES": 1, "NODE_RANK": 0, "WORLD_SIZE": 1, "BATCH_SIZE": 8,
        "TRAINING_SET_SIZE": 64, "RESERVED_MEM": 1000, "SWITCHYARD_SNAPSHOTS_DIR": snapshots,
    }  # fmt: skip
    table.update(changes)
    return {name: str(value) for name, value in table.items() if value is not None}


@contextlib.contextmanager
def environment(**changes: Any) -> Iterator[Path]:
    """Puts a job's environment in force, with a snapshots folder of its own, which it yields."""
    with tempfile.TemporaryDirectory() as snapshots:
        table = dict({"PATH": os.environ.get("PATH", "")}, **variables(snapshots, **changes))
        with mock.patch.dict(os.environ, table, clear=True):
            yield Path(snapshots)


def run_script(
    script: Path, table: Dict[str, str], path: str = "", arguments: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    """Runs script in a process of its own with the library importable."""
    python_path = os.pathsep.join(part for part in (path, str(LIBRARY)) if part)
    full = dict({"PATH": os.environ.get("PATH", "")}, **dict(table, PYTHONPATH=python_path))
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        env=full,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=10 * PATIENCE_SECONDS,
    )
