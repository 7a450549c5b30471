"""What the scheduler tells a training process through its environment, read once."""

import os
from pathlib import Path
from typing import Mapping, NamedTuple, Optional

LOCAL_CHECKPOINT_DIR = "checkpoints"
DEFAULT_HEARTBEAT_STEPS = 10
# Where mpirun of Open MPI, mpirun of MPICH and Intel MPI, and horovodrun tell a process its rank and the number of all.
OTHER_LAUNCHERS = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("HOROVOD_RANK", "HOROVOD_SIZE"))


class Environment(NamedTuple):
    """One process's share of a job. Everything has a value that makes sense outside of Switchyard."""

    uuid: str
    name: str
    attempt: int
    restarted: bool
    epochs_done: int
    epochs: Optional[int]
    max_steps: Optional[int]
    batch_size: Optional[int]
    training_set_size: Optional[int]
    heartbeat_steps: int
    num_devices: int
    num_nodes: int
    node_list: str
    rank: int
    world_size: int
    one_process_per_device: bool
    device_rank: int
    device_count: int
    global_batch: Optional[int]
    base_batch: Optional[int]
    accumulation: Optional[int]
    learning_rate: str
    batch_generation: int
    checkpoint_dir: Path

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> "Environment":
        """Reads environ; raises ValueError, naming the variable, where a number is expected and there is none."""
        uuid = environ.get("JOB_UUID", "")
        per_device = "LOCAL_WORLD_SIZE" in environ or "LOCAL_RANK" in environ
        num_devices = max(1, _integer(environ, "NUM_GPUS", 1))
        rank, world_size = _rank(environ, num_devices), max(1, _integer(environ, "WORLD_SIZE", 1))
        for own, of_all in () if per_device else OTHER_LAUNCHERS:
            processes = _integer(environ, of_all, 1)
            if processes > 1:
                rank, world_size, per_device = _integer(environ, own, 0), processes, True
                break
        # Launchers tell the processes that they start their ranks, but do not change SWITCHYARD_DEVICE_*.
        device_rank, device_count = rank, world_size
        if not per_device:
            device_rank = _integer(environ, "SWITCHYARD_DEVICE_RANK", 0)
            device_count = max(1, _integer(environ, "SWITCHYARD_DEVICE_COUNT", num_devices))
        return cls(
            uuid=uuid,
            name=environ.get("SWITCHYARD_JOB", "") or uuid or "local",
            attempt=_integer(environ, "SWITCHYARD_ATTEMPT", 0),
            # An unset JOB_RESTARTED is a run outside of the scheduler, which always sets it.
            restarted=environ.get("JOB_RESTARTED", "FALSE") != "FALSE",
            epochs_done=_integer(environ, "EPOCHS_DONE", 0),
            epochs=_positive(environ, "EPOCHS_TO_BE_DONE"),
            max_steps=_positive(environ, "SWITCHYARD_MAX_STEPS"),
            batch_size=_positive(environ, "BATCH_SIZE"),
            training_set_size=_positive(environ, "TRAINING_SET_SIZE"),
            heartbeat_steps=max(1, _integer(environ, "HEARTBEAT_FREQ", DEFAULT_HEARTBEAT_STEPS)),
            num_devices=num_devices,
            num_nodes=max(1, _integer(environ, "NUM_NODES", 1)),
            node_list=environ.get("NODELIST", ""),
            rank=rank,
            world_size=world_size,
            one_process_per_device=per_device,
            device_rank=device_rank,
            device_count=device_count,
            global_batch=_positive(environ, "SWITCHYARD_GLOBAL_BATCH"),
            base_batch=_positive(environ, "SWITCHYARD_BASE_BATCH"),
            accumulation=_positive(environ, "SWITCHYARD_ACCUMULATION"),
            learning_rate=environ.get("SWITCHYARD_LEARNING_RATE", ""),
            batch_generation=_integer(environ, "SWITCHYARD_BATCH_GENERATION", 0),
            checkpoint_dir=snapshot_dir(environ, uuid) if uuid else Path(LOCAL_CHECKPOINT_DIR),
        )

    @property
    def steps_per_epoch(self) -> Optional[int]:
        """Optimizer steps of one epoch: training-set size / (batch size x devices x nodes)."""
        if self.batch_size is None or self.training_set_size is None:
            return None
        if self.global_batch is not None:
            return self.training_set_size // self.global_batch
        return self.training_set_size // (self.batch_size * self.num_devices * self.num_nodes)

    @property
    def own_devices(self) -> int:
        """The devices of this process."""
        return 1 if self.one_process_per_device else self.num_devices

    @property
    def samples_per_step(self) -> int:
        """Training samples that this process takes in one step; 0 where no batch size is known."""
        return (self.batch_size or 0) * self.own_devices


def snapshot_dir(environ: Mapping[str, str], uuid: str) -> Path:
    """The job's own folder of checkpoints, the same for every attempt."""
    return Path(environ.get("SWITCHYARD_SNAPSHOTS_DIR") or "/snapshots", uuid)


def make_snapshot_dir(folder: Path) -> None:
    """Creates folder inside a mounted snapshots folder; where nothing is mounted there is nothing to create it in."""
    try:
        os.mkdir(folder)
    except (FileExistsError, FileNotFoundError, PermissionError):
        pass


def _rank(environ: Mapping[str, str], num_devices: int) -> int:
    node_rank = _integer(environ, "NODE_RANK", 0)
    if environ.get("RANK"):
        return _integer(environ, "RANK", 0)
    if environ.get("LOCAL_RANK"):
        return node_rank * num_devices + max(0, _integer(environ, "LOCAL_RANK", 0))
    return node_rank


def _integer(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError("environment variable %s=%r: want a whole number" % (name, text)) from None


def _positive(environ: Mapping[str, str], name: str) -> Optional[int]:
    number = _integer(environ, name, 0)
    return number if number > 0 else None
