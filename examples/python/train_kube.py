"""Trains the same network through kubernetesdlprofile, call for call like the PyTorch script of its guide."""

import os
import pickle

from kubernetesdlprofile import kubeprofiler
from ledger import Ledger
from mlp import MLP, batches, training_set


def save(state: object, path: str) -> None:
    """A kill in the middle must leave the checkpoint before it whole."""
    with open(path + ".tmp", "wb") as file:
        pickle.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def main() -> None:
    prof = kubeprofiler.KubeProfiler()
    path = prof.root_dir + "/mlp.pkl"
    model = MLP()
    first = 0
    # The scheduler may know of an epoch whose checkpoint was never written: the checkpoint is what counts.
    if prof.RESTARTED and os.path.exists(path):
        with open(path, "rb") as file:
            first, state = pickle.load(file)
        model.restore(state)
    prof.epoch = first
    samples = training_set(prof.TRAINING_SET_SIZE)
    batch_size = prof.BATCH_SIZE * prof.NUM_GPUS
    ledger = Ledger(prof.RANK)
    with ledger.running(first):
        for epoch in range(first, prof.EPOCHS):
            prof.start_epoch()
            for batch in batches(samples, batch_size, epoch):
                model.train(batch)
                prof.measure()
            prof.end_epoch()
            save((epoch + 1, model.state()), path)
            ledger.epoch(epoch + 1)
            print("epoch %d weights %s" % (epoch + 1, model.digest()), flush=True)


if __name__ == "__main__":
    main()
