"""Switchyard's library for training code: progress, checkpoints, and leaving when the scheduler asks.

    import switchyard

    with switchyard.job() as job:
        state = job.load("state.pkl", default=new_state())
        for epoch in job.epochs(10):
            for batch in job.steps(loader):
                train(state, batch)
            job.report(loss=state.loss)
            job.save(state, "state.pkl")

The same script runs without a scheduler: nothing is sent, and checkpoints go to ./checkpoints.
"""

import atexit
import os
from typing import Optional

from switchyard._blocks import Slice, balance_blocks
from switchyard._callbacks import keras_callback, lightning_callback, transformers_callback
from switchyard._job import Job

__all__ = ["Job", "Slice", "balance_blocks", "job", "keras_callback", "lightning_callback", "transformers_callback"]
__version__ = "0.1.0"


def job(epochs: Optional[int] = None, batch_size: Optional[int] = None) -> Job:
    """The job that this process belongs to, from its environment.

    epochs is how many epochs there are in all, and batch_size how many samples a device takes in one pass, where the
    scheduler does not say. Raises ValueError when a variable that should hold a number does not.
    """
    this = Job(os.environ, epochs, batch_size)
    atexit.register(this.leave)
    return this
