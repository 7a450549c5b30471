"""Trains a small network through the package switchyard. Without a scheduler: ``python train_mlp.py``.

Sized by BATCH_SIZE, TRAINING_SET_SIZE and EPOCHS_TO_BE_DONE. Stopped or killed at any moment, it goes on from its
last checkpoint and ends with exactly the weights of an uninterrupted run.
"""

import switchyard
from ledger import Ledger
from mlp import MLP, batches, training_set

CHECKPOINT = "mlp.pkl"
EPOCHS = 5
TRAINING_SET_SIZE = 400
BATCH_SIZE = 32


def main() -> None:
    with switchyard.job(epochs=EPOCHS) as job:
        model = MLP()
        saved = job.load(CHECKPOINT)
        if saved is not None:
            model.restore(saved)
        samples = training_set(job.training_set_size or TRAINING_SET_SIZE)[job.rank :: job.world_size]
        batch_size = job.samples_per_step or BATCH_SIZE
        ledger = Ledger(job.rank)
        with ledger.running(job.epochs_done):
            for epoch in job.epochs():
                right = steps = 0.0
                for batch in batches(samples, batch_size, epoch):
                    done = model.train(batch)
                    job.step(loss=done.loss, samples=len(batch), grad_sqr=done.grad_sqr, grad_var=done.grad_var)
                    right += done.accuracy
                    steps += 1
                accuracy = right / max(1.0, steps)
                job.report(accuracy=accuracy)
                job.save(model.state(), CHECKPOINT)
                ledger.epoch(epoch + 1)
                print("epoch %d accuracy %.3f weights %s" % (epoch + 1, accuracy, model.digest()), flush=True)


if __name__ == "__main__":
    main()
