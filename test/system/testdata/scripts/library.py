"""Trains with the library: four epochs, of which the first attempt does two and then hangs or fails."""

import os
import sys
import time

import switchyard

with switchyard.job() as job:
    state = job.load("model", default={"steps": 0})
    for epoch in job.epochs():
        for batch in job.steps(range(10)):
            state["steps"] += 1
        job.save(state, "model")
        job.report(loss=1 / (epoch + 1))
        if epoch == 1 and os.environ["SWITCHYARD_ATTEMPT"] == "1":
            if "fail" in sys.argv:
                sys.exit(5)
            while "hang" in sys.argv:
                time.sleep(1)
print("trained", state["steps"], "steps")
