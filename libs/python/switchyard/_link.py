"""What a job says to its job API and hears from it, in the API's own words. No decision is taken here."""

import json
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional

from switchyard._http import Address, Answer, Client, complain, segment
from switchyard._sender import Sender

FINISHED = "finished"
STOPPED = "stopped"
FAILED = "failed"
LONGEST_MESSAGE = 2000


class Wish(NamedTuple):
    """How the scheduler wants the steps to be done. None: it has asked for nothing of the kind."""

    micro_batch: Optional[int]
    accumulation: Optional[int]
    generation: int
    global_batch: Optional[int] = None


class Link:
    """The job API of one attempt; silent outside of Switchyard, where there is no address."""

    def __init__(self, address: Optional[Address], uuid: str, rank: int, generation: int = 0):
        self._client = Client(address) if address is not None and uuid else None
        self._sender = Sender()
        self._base = "/v1/jobs/%s/" % segment(uuid)
        self._rank = rank
        # The newest one that was heard, with a heartbeat or at the end of an epoch.
        self.wish = Wish(None, None, generation)
        # Whether the scheduler is about to ask for a stop, as the newest answer said.
        self.stop_near = False

    @property
    def fenced(self) -> bool:
        """Whether a newer attempt has taken this one's place."""
        return self._client is not None and self._client.fenced

    def ready_for_heartbeat(self) -> bool:
        """Whether a heartbeat would leave at once."""
        return self._client is not None and not self._sender.heartbeat_waiting()

    def steps(self, body: Dict[str, Any]) -> None:
        """Queues a heartbeat."""
        self._queue("steps", dict(body, rank=self._rank), heartbeat=True, heard=self._hear)

    def epoch(self, body: Dict[str, Any]) -> None:
        """Queues a finished epoch and waits, shortly, until it and all before it has left."""
        self._queue("epochs", dict(body, rank=self._rank), keep=True)
        self._sender.flush()

    def checkpoint(self, body: Dict[str, Any], path: Path) -> None:
        """Queues a checkpoint."""
        self._queue("checkpoints", dict(body, path=str(path)), keep=True)

    def settle(self) -> None:
        """Waits, shortly, until all that was queued has left."""
        self._sender.flush()

    def stop_asked(self, epochs_done: int, step: Optional[int] = None) -> Optional[bool]:
        """Asks whether to leave after epochs_done epochs. None: nobody answered.

        The question names its epoch, so that the processes of one job, which ask at slightly different moments,
        can be given one answer. With a step one process asks for all, in the middle of an epoch.
        """
        if self._client is None:
            return None
        question = "%scontrol?epochs_done=%d&rank=%d" % (self._base, epochs_done, self._rank)
        answer = self._client.get(question if step is None else "%s&step=%d" % (question, step))
        if answer is None or not answer.ok:
            return None
        said = self._hear(answer)
        return None if said is None else said.get("stop") is True

    def last_words(self) -> None:
        """Sends all that waits, with one more try in the middle of a back-off: the process is about to leave."""
        self._sender.last_words()

    def end(self, outcome: str, epochs_done: int, message: str) -> None:
        """Sends all that waits, then how the job ended."""
        if self._client is None:
            return
        body = {"outcome": outcome, "epochs_done": epochs_done, "message": message[:LONGEST_MESSAGE]}
        self._sender.last(self._client, self._base + "end", body)

    def _queue(
        self,
        what: str,
        body: Dict[str, Any],
        keep: bool = False,
        heartbeat: bool = False,
        heard: Optional[Callable[[Answer], Any]] = None,
    ) -> None:
        if self._client is not None:
            self._sender.post(self._client, self._base + what, lambda: body, keep, heartbeat, heard)

    def _hear(self, answer: Answer) -> Optional[Mapping[str, Any]]:
        """The answer as a record, after the wish in it, if there is one, was taken note of."""
        try:
            said: Mapping[str, Any] = json.loads(answer.body)
            self.stop_near = said.get("stop") is True
            micro_batch = _count(said.get("micro_batch"))
            if micro_batch is not None:
                generation = _count(said.get("generation")) or 0
                self.wish = Wish(
                    micro_batch, _count(said.get("accumulation")), generation, _count(said.get("global_batch"))
                )
            return said
        except (ValueError, AttributeError):
            complain("the scheduler's answer is no control record: %r" % answer.body[:200])
            return None


def _count(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
