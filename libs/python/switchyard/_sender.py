"""Posts what training has to say from one daemon thread, so that a step never waits for the network."""

import collections
import json
import os
import threading
import time
from typing import Any, Callable, Deque, Mapping, NamedTuple, Optional

from switchyard import _http
from switchyard._http import Answer, Client, complain

MOST_POSTS_QUEUED = 1000


class _Post(NamedTuple):
    client: Client
    path: str
    body: Callable[[], Any]
    keep: bool
    heartbeat: bool
    heard: Optional[Callable[[Answer], None]]
    file: Optional[str]


class Unreported:
    """The folder of this attempt in which the scheduler looks, after the end, for posts that did not arrive.

    Each is a file: {"path", "body"}. They are named so that their order is that in which they were made.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._folder = environ.get("SWITCHYARD_UNREPORTED", "")
        self._made = 0

    def put(self, path: str, body: Any) -> Optional[str]:
        """Writes a post down, and returns the name of its file; None where there is no such folder, or no room."""
        if not self._folder:
            return None
        self._made += 1
        name = "%020d-%d-%d.json" % (time.time_ns(), os.getpid(), self._made)
        final, temporary = os.path.join(self._folder, name), os.path.join(self._folder, "." + name)
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump({"path": path, "body": body}, file, allow_nan=False)
            os.replace(temporary, final)
        except (OSError, ValueError):
            return None
        return final

    @staticmethod
    def drop(file: Optional[str]) -> None:
        """Removes the file of a post that has arrived, or that the server refuses."""
        if file is not None:
            try:
                os.unlink(file)
            except OSError:
                pass


class Sender:
    """A queue of posts and the thread that sends them, in order.

    A post that is kept stays first in the queue until the server takes or refuses it; any other is dropped when it
    cannot be sent at once: the next of its kind carries newer figures anyway. Until then a kept post is also a file, so
    that it outlives the process, however that ends.
    """

    _thread: Optional[threading.Thread]

    def __init__(self) -> None:
        self._unreported = Unreported(os.environ)
        self._reset()

    def post(
        self,
        client: Client,
        path: str,
        body: Callable[[], Any],
        keep: bool = False,
        heartbeat: bool = False,
        heard: Optional[Callable[[Answer], None]] = None,
    ) -> None:
        """Queues a post; ``body`` is called in the sending thread to make the JSON value, ``heard`` with the answer."""
        if self._pid != os.getpid():
            # A forked child inherits the queue but not the thread; what is in the queue is the parent's to send.
            self._reset()
        file = self._unreported.put(path, body()) if keep and not client.fenced else None
        with self._changed:
            if len(self._posts) >= MOST_POSTS_QUEUED:
                self._posts.popleft()
            self._posts.append(_Post(client, path, body, keep, heartbeat, heard, file))
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="switchyard-sender", daemon=True)
                self._thread.start()

    def heartbeat_waiting(self) -> bool:
        """Whether a heartbeat has not left yet: then the next one had better go on gathering steps."""
        if self._pid != os.getpid():  # those of the parent
            return False
        with self._changed:
            return any(post.heartbeat for post in self._posts)

    def last(self, client: Client, path: str, body: Any) -> None:
        """Sends the last post of this process, back-off or not, after all that waits."""
        file = None if client.fenced else self._unreported.put(path, body)
        self.last_words()
        if not _may_be_taken_later(client.post(path, body, insist=True), client):
            self._unreported.drop(file)

    def flush(self) -> bool:
        """Waits until all is sent, for as long as one request may take and not through a back-off.

        False: something is still waiting.
        """
        if self._pid != os.getpid():
            return True
        deadline = time.monotonic() + _http.TIMEOUT_SECONDS
        with self._changed:
            while self._posts or self._sending:
                left = deadline - time.monotonic()
                if left <= 0 or (not self._sending and _held_back(self._posts[0])):
                    return False
                self._changed.wait(left)
        return True

    def last_words(self) -> None:
        """Tries once more, back-off or not, to send what was kept: nothing comes after this."""
        if self.flush():
            return
        with self._changed:
            kept = [post for post in self._posts if post.keep]
            self._posts.clear()
        for post in kept:
            if _may_be_taken_later(post.client.post(post.path, post.body(), insist=True), post.client):
                return
            self._unreported.drop(post.file)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._posts: Deque[_Post] = collections.deque()
        self._changed = threading.Condition()
        self._sending = False
        self._thread = None

    def _run(self) -> None:
        while True:
            post = self._next()
            again = post.keep and not post.client.fenced
            try:
                answer = post.client.post(post.path, post.body())
                again = again and _may_be_taken_later(answer, post.client)
                if post.heard is not None and answer is not None and answer.ok:
                    post.heard(answer)
            except Exception as problem:  # The thread must outlive a body that cannot be made.
                complain("cannot report to %s: %s" % (post.path, problem))
                again = False
            if not again:
                self._unreported.drop(post.file)
            with self._changed:
                self._sending = False
                if again:
                    self._posts.appendleft(post)
                self._changed.notify_all()

    def _next(self) -> _Post:
        """Takes the first post off the queue as soon as there is one that may be sent now."""
        with self._changed:
            while True:
                if not self._posts:
                    self._changed.wait()
                elif _held_back(self._posts[0]):
                    self._changed.notify_all()
                    self._changed.wait(self._posts[0].client.seconds_until_retry())
                else:
                    self._sending = True
                    return self._posts.popleft()


def _held_back(post: _Post) -> bool:
    return post.keep and not post.client.fenced and post.client.seconds_until_retry() > 0


def _may_be_taken_later(answer: Optional[Answer], client: Client) -> bool:
    return not client.fenced and (answer is None or answer.retryable)
