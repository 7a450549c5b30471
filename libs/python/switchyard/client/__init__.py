"""A client for Switchyard: submit jobs, wait for them, read their output and their results.

    from switchyard.client import Yard

    yard = Yard()                                     # the installation that the command line finds
    job = yard.submit(["python3", "train.py"], max_epochs=10, priority=80)
    for line in yard.logs(job, follow=True):
        print(line)
    [ended] = yard.wait(job)
    print(ended["state"])

AsyncYard is the same for asyncio. Study searches for good parameters by jobs. Records are dictionaries with the types of docs/openapi.json. Errors are of the class
Error, and their texts say what to do.
"""

from switchyard.client._async_yard import AsyncYard
from switchyard.client._errors import Away, Error, Forbidden, Late, NotFound, Refused, Rejected, Unfinished
from switchyard.client._questions import Change, JobRef, Results
from switchyard.client._records import (
    About, Changes, Detail, Epoch, File, FileAnswer, Job, Node, Problem, Reason, Spec, Text, ViewJob,
)  # fmt: skip
from switchyard.client._search import Over, Trial
from switchyard.client._space import choice, integer, log_integer, log_uniform, uniform
from switchyard.client._study import AsyncStudy, Study
from switchyard.client._yard import Yard

__all__ = [
    "About", "AsyncStudy", "AsyncYard", "Away", "Change", "Changes", "Detail", "Epoch", "Error", "File", "FileAnswer",
    "Forbidden", "Job", "JobRef", "Late", "Node", "NotFound", "Over", "Problem", "Reason", "Refused", "Rejected",
    "Results", "Spec", "Study", "Text", "Trial", "Unfinished", "ViewJob", "Yard", "choice", "integer", "log_integer",
    "log_uniform", "uniform",
]  # fmt: skip
