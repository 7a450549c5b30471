"""Posts what training has to say from one daemon thread, so that a step never waits for the network."""

import collections
import os
import threading
import time
from typing import Any, Callable, Deque, NamedTuple, Optional

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


class Sender:
    """A queue of posts and the thread that sends them, in order.

    A post that is kept stays first in the queue until the server takes or refuses it; any other is dropped when it
    cannot be sent at once: the next of its kind carries newer figures anyway.
    """

    def __init__(self) -> None:
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
        with self._changed:
            if len(self._posts) >= MOST_POSTS_QUEUED:
                self._posts.popleft()
            self._posts.append(_Post(client, path, body, keep, heartbeat, heard))
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="switchyard-sender", daemon=True)
                self._thread.start()

    def heartbeat_waiting(self) -> bool:
        """Whether a heartbeat has not left yet: then the next one had better go on gathering steps."""
        with self._changed:
            return any(post.heartbeat for post in self._posts)

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

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._posts: Deque[_Post] = collections.deque()
        self._changed = threading.Condition()
        self._sending = False
        self._thread: Optional[threading.Thread] = None

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
