"""Searches for a learning rate and a size of hidden layer: trials are jobs, two at a time.

Run it again with a larger number of trials, and it goes on: the trials that are there count.
"""

import sys
from pathlib import Path

from switchyard.client import Study, Yard, integer, log_uniform

TRAINER = Path(__file__).resolve().parent.parent.parent / "bin" / "switchyard-trainer"


def main(trials: int) -> None:
    space = {"learning_rate": log_uniform(0.001, 0.5), "hidden": integer(8, 32)}
    study = Study(Yard(), "digits-study", space, objective="accuracy")
    command = [str(TRAINER), "-lr", "${learning_rate}", "-hidden", "${hidden}"]
    for trial in study.run(command, trials=trials, at_once=2, batch_size=64, training_set_size=640, max_epochs=2):
        print(trial.number, trial.params, trial.state, trial.value)
    print("best:", study.best)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
