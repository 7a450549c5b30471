"""KubeProfiler, call for call and byte for byte what scripts written for it expect, on Switchyard's job API.

What differs from the original is only what happens when something is missing: without nvidia-smi the memory is
0, and a server that is away costs at most two seconds now and then. Heartbeats leave from one thread, in order.
"""

import atexit
import datetime
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from switchyard._batch import Batch
from switchyard._environment import Environment, make_snapshot_dir, snapshot_dir
from switchyard._gate import gated
from switchyard._http import Address, Client, address_from_environment, segment
from switchyard._link import Link
from switchyard._meter import gpu_memory_bytes
from switchyard._sender import Sender
from switchyard._threads import Threads

NVIDIA_SMI_TIMEOUT_SECONDS = 5.0
MEMORY_READING_LASTS_SECONDS = 1.0
MEMORY_FAILURE_LASTS_SECONDS = 60.0


class KubeProfiler(object):
    """Tells the scheduler how fast a job trains, and leaves the process when it is asked to.

    Call start_epoch, then measure after each training step, then end_epoch. job_manager_hostname answers
    has_to_stop and takes end_epoch, db_hostname takes the profile; both are host or host:port, and both are by
    default the job API that the scheduler names in the environment.
    """

    # The tuning of micro-batches, once a loop has asked for it.
    _tuned: "Optional[_Tuned]"

    def __init__(self, job_manager_hostname: Optional[str] = None, db_hostname: Optional[str] = None):
        self.jmHostname = job_manager_hostname
        self.dbHostname = db_hostname
        self._read_environment()
        self.mean_iteration_duration: float = 0
        self.iterations = 0
        self.epoch = self.EPOCHS_DONE
        self.iterationPerEpoch = int(self.TRAINING_SET_SIZE / (self.BATCH_SIZE * self.NUM_GPUS * self.NUM_NODES))
        self.maxIterations = self.iterationPerEpoch * self.EPOCHS
        self.last_time: Optional[datetime.datetime] = None
        self.has_to_stop = False
        self.start_epoch_time: Optional[datetime.datetime] = None
        self.end_epoch_time: Optional[datetime.datetime] = None

        folder = snapshot_dir(os.environ, self.JOBID)
        make_snapshot_dir(folder)
        self.root_dir = str(folder)
        if self.RESTARTED:
            self.ckpt_path = _lightning_checkpoint(folder) or self.root_dir + "/tf_ckpt"
        self._connect()

    def start_epoch(self) -> None:
        """Asks whether to stop. A stop is obeyed by the next measure, and never with only the last epoch left."""
        self.start_epoch_time = datetime.datetime.now()
        self._threads.follow()
        if self._job_manager is None:
            return
        answer = self._job_manager.get("/has_to_stop/" + segment(self.JOBID))
        if answer is not None and answer.ok and answer.body == b"1" and self.epoch < self.EPOCHS - 1:
            self.has_to_stop = True

    def measure(self) -> None:
        """Counts a training step; sends the profile every PROFILE_EACH steps; leaves by SystemExit when armed."""
        self._threads.follow()
        now = datetime.datetime.now()
        if self._tuned is not None and not self._tuned.step_ends():
            return  # a part of a step
        if self.last_time is not None:
            seconds = (now - self.last_time).total_seconds()
            self.iterations += 1
            if self._tuned is not None:
                self._tuned.add(seconds)
            self.mean_iteration_duration += (seconds - self.mean_iteration_duration) / self.iterations
        self.last_time = now
        if self.PROFILE_EACH > 0 and self.iterations > 0 and self.iterations % self.PROFILE_EACH == 0:
            self.send_profiling()
        if self.has_to_stop:
            sys.exit()

    def end_epoch(self) -> None:
        """Sends the epoch's profile and the number of epochs done, and waits, shortly, until both have left."""
        self.end_epoch_time = now = datetime.datetime.now()
        started = self.start_epoch_time or now
        self._post_profile(dict(self._profile(now), epochDur=(now - started).total_seconds()))
        self.epoch += 1
        if self._job_manager is not None:
            done = {"done": self.epoch}
            path = "/end_epoch/" + segment(self.JOBID)
            self._sender.post(self._job_manager, path, lambda: done, keep=True)
        self._sender.flush()

    def micro_batches(self, loader: Iterable[Any], optimizer: Any) -> Iterator[Any]:
        """Lets the scheduler choose the micro-batch: ``for x, y in profiler.micro_batches(loader, optimizer)``.

        Not in the original. The loop gets the parts of each batch of the loader, and steps once for all parts of one.
        It calls measure after each part, as before. A loop that clips gradients, uses a GradScaler, or steps a
        learning rate for each batch cannot be tuned so.
        """
        if self._tuned is None:
            self._tuned = _Tuned(self._here(), self.JOBID, self.RANK)
        return gated(map(self._tuned.parts, loader), optimizer)

    def end(self) -> None:
        """Nothing: the end of the process is the end of the job."""

    def send_profiling(self) -> None:
        """Sends the profile as it is now; of a job whose micro-batch is tuned, the steps since the last time."""
        if self._tuned is not None:
            self._tuned.send(self.iterations, self.epoch, self.EPOCHS_DONE, self.iterationPerEpoch)
            return
        self._post_profile(self._profile(datetime.datetime.now()))

    def __getstate__(self) -> Dict[str, Any]:
        # Frameworks copy and pickle the model that holds a profiler; a connection does not travel.
        connected = ("_job_manager", "_profile_store", "_sender", "_memory", "_threads", "_tuned")
        return {name: value for name, value in self.__dict__.items() if name not in connected}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._connect()

    def _read_environment(self) -> None:
        missing = [name for name in ("JOB_UUID", "BATCH_SIZE", "EPOCHS_TO_BE_DONE", "TRAINING_SET_SIZE")
                   if not os.environ.get(name)]
        if missing:
            raise EnvironmentError(
                "not set in the environment: %s. Submit the script as a job, or set them yourself" % ", ".join(missing)
            )
        self.JOBID = os.environ["JOB_UUID"]
        self.PROFILE_EACH = int(os.environ.get("HEARTBEAT_FREQ", "10"))
        self.RANK = int(os.environ.get("NODE_RANK", "0"))
        self.NODE_LIST = os.environ.get("NODELIST", "")
        # A job without devices still trains, on the processor.
        self.NUM_GPUS = max(1, int(os.environ.get("NUM_GPUS", "1")))
        self.NUM_NODES = max(1, int(os.environ.get("NUM_NODES", "1")))
        self.RESTARTED = os.environ.get("JOB_RESTARTED") != "FALSE"
        self.BATCH_SIZE = int(os.environ["BATCH_SIZE"])
        self.EPOCHS = int(os.environ["EPOCHS_TO_BE_DONE"])
        self.EPOCHS_DONE = int(os.environ.get("EPOCHS_DONE", "0"))
        self.TRAINING_SET_SIZE = int(os.environ["TRAINING_SET_SIZE"])
        self.LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "-1"))

    def _connect(self) -> None:
        here = self._here()
        self._tuned = None
        job_manager = Address.parse(self.jmHostname) if self.jmHostname else here
        profile_store = Address.parse(self.dbHostname) if self.dbHostname else here
        self._job_manager = Client(job_manager) if job_manager is not None else None
        self._profile_store = self._job_manager
        if profile_store != job_manager:
            self._profile_store = Client(profile_store) if profile_store is not None else None
        self._sender = Sender()
        self._threads = Threads(os.environ)
        self._memory = _GPUMemory()
        atexit.register(self._sender.last_words)

    def _here(self) -> Optional[Address]:
        """The job API that the scheduler names."""
        here = address_from_environment(os.environ)
        if here is None and os.environ.get("SWITCHYARD_JOB_MANAGER"):
            here = Address.parse(os.environ["SWITCHYARD_JOB_MANAGER"])
        return here

    def _profile(self, now: datetime.datetime) -> Dict[str, Any]:
        """The record without its memory, which is slow to read and therefore read where it is sent."""
        return {
            "jobid": self.JOBID,
            "timestamp": now.isoformat(),
            "iternum": self.iterations,
            "nodelist": self.NODE_LIST,
            "numgpu": self.NUM_GPUS,
            "rank": self.RANK,
            "meandur": self.mean_iteration_duration,
            "gpumem": 0,
        }

    def _post_profile(self, record: Dict[str, Any]) -> None:
        if self._profile_store is None:
            return
        path, memory = "/profiling/" + segment(self.JOBID), self._memory
        self._sender.post(self._profile_store, path, lambda: dict(record, gpumem=memory.used_mib()))


class _Tuned:
    """The steps of a job whose micro-batch the scheduler chooses; heartbeats say which one they were measured with."""

    def __init__(self, address: Optional[Address], uuid: str, rank: int):
        environment = Environment.read(os.environ)
        self._link = Link(address, uuid, rank, environment.batch_generation)
        self._batch = Batch(environment, self._link)
        self._last = True
        self._steps = 0
        self._seconds = 0.0

    def parts(self, batch: Any) -> Iterator[Tuple[Any, float, bool]]:
        for part, weight, self._last in self._batch.marked_parts(batch):
            yield part, weight, self._last

    def step_ends(self) -> bool:
        return self._last

    def add(self, seconds: float) -> None:
        self._steps += 1
        self._seconds += seconds

    def send(self, iterations: int, epoch: int, epochs_before: int, epoch_steps: int) -> None:
        if self._steps == 0:
            return
        done = iterations - (epoch - epochs_before) * epoch_steps
        body: Dict[str, Any] = {
            "step": epochs_before * epoch_steps + iterations,
            "epoch": epoch,
            "epoch_step": max(done, 0),
            "epoch_steps": max(epoch_steps, done),
            "steps": self._steps,
            "step_seconds": self._seconds / self._steps,
        }
        memory_bytes = gpu_memory_bytes()
        if memory_bytes is not None:
            body["gpu_memory_bytes"] = memory_bytes
        body.update(self._batch.ran())
        self._link.steps(body)
        self._steps, self._seconds = 0, 0.0


class _GPUMemory:
    """This process's GPU memory by nvidia-smi, which is heavy: a reading lasts a while."""

    def __init__(self) -> None:
        self._mib = 0
        self._stale_at = float("-inf")

    def used_mib(self) -> int:
        """MiB in use; 0 where nvidia-smi is missing, fails or does not list this process."""
        if time.monotonic() < self._stale_at:
            return self._mib
        lasts_seconds = MEMORY_READING_LASTS_SECONDS
        try:
            self._mib = _memory_in(_nvidia_smi(), os.getpid())
        except (OSError, subprocess.SubprocessError, ElementTree.ParseError):
            self._mib = 0
            lasts_seconds = MEMORY_FAILURE_LASTS_SECONDS
        self._stale_at = time.monotonic() + lasts_seconds
        return self._mib


def _nvidia_smi() -> bytes:
    return subprocess.run(
        ["nvidia-smi", "-q", "-x"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=NVIDIA_SMI_TIMEOUT_SECONDS,
        check=True,
    ).stdout


def _memory_in(report: bytes, pid: int) -> int:
    """The MiB that report gives for pid; as in the original the last device listed counts, not the sum."""
    mib = 0
    for process in ElementTree.fromstring(report).findall("gpu/processes/process_info"):
        used = re.match(r"\d+", process.findtext("used_memory") or "")
        if process.findtext("pid") == str(pid) and used:
            mib = int(used.group())
    return mib


def _lightning_checkpoint(folder: Path) -> Optional[str]:
    """The first file of the newest lightning_logs/version_<n>/checkpoints that has one."""
    for version in reversed(_versions(folder / "lightning_logs")):
        checkpoints = folder / "lightning_logs" / ("version_%d" % version) / "checkpoints"
        files: List[Path] = []
        if checkpoints.is_dir():
            files = sorted(entry for entry in checkpoints.iterdir() if entry.is_file())
        if files:
            return str(files[0])
    return None


def _versions(logs: Path) -> List[int]:
    if not logs.is_dir():
        return []
    names = (re.match(r"version_(\d+)$", entry.name) for entry in logs.iterdir())
    return sorted(int(name.group(1)) for name in names if name)
