"""Runs a BigDL program with checkpoints: spark-submit runs this file, whose first argument is the program.

It stands alone: Spark's Python need not be that of the job, and runs it as a script. It calls BigDL only as any
program may: Optimizer.set_checkpoint, Model.load and OptimMethod.load of BigDL 0.5 to 0.13. BigDL saves model.N and then
optimMethod.N (optimMethod-NAME.N in newer versions) after N iterations, in a folder named by the time of the start.
The epoch and the iteration are part of the optimizer's state, so a program that ends after epoch 5 trains two more
after a state of epoch 3.
"""

import importlib
import inspect
import os
import runpy
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

MARK = "SWITCHYARD_JOB_ATTEMPT"
"""The variable by which node agents know the processes of a job."""


class Saved(NamedTuple):
    """A state that a program saved: its model, and its optimizers by the names of the layers ("" for all)."""

    model: Path
    methods: Dict[str, Path]


def states(folder: Path) -> Iterator[Saved]:
    """The whole states in a folder of checkpoints, the newest first."""
    found: List[Tuple[int, float, Saved]] = []
    for model in folder.glob("*/model.*"):
        after = model.name.rpartition(".")[2]
        methods = {path.name[len("optimMethod") : -len(after) - 1].lstrip("-"): path for path in model.parent.glob("optimMethod*." + after)}
        if after.isdigit() and methods:
            found.append((int(after), model.stat().st_mtime, Saved(model, methods)))
    for _, _, state in sorted(found, key=lambda entry: entry[:2], reverse=True):
        yield state


def checkpoints() -> Path:
    """The folder in which the job keeps BigDL's checkpoints."""
    return Path(os.environ.get("SWITCHYARD_SNAPSHOTS_DIR") or "/snapshots", os.environ.get("JOB_UUID", ""), "bigdl")


def mark_executors(pyspark: Any) -> None:
    """Gives executors the mark of the attempt."""
    begin, mark = pyspark.SparkContext.__init__, os.environ.get(MARK)
    if not mark:
        return

    def init(self: Any, *args: Any, **named: Any) -> None:
        given = inspect.signature(begin).bind(self, *args, **named)
        given.arguments["environment"] = dict(given.arguments.get("environment") or {}, **{MARK: mark})
        begin(*given.args, **given.kwargs)

    pyspark.SparkContext.__init__ = init


def go_on(optim: Any, load_model: Callable[[str], Any], folder: Path) -> None:
    """Makes optimizers begin from the newest state in the folder, and save each epoch there."""
    for name in ("Optimizer", "DistriOptimizer", "LocalOptimizer"):
        kind = getattr(optim, name, None)
        if kind is not None:
            kind.__init__ = _beginning(kind.__init__, optim, load_model, folder)
    kind = getattr(optim, "BaseOptimizer", optim.Optimizer)
    set_checkpoint, optimize = kind.set_checkpoint, kind.optimize

    def save_here(self: Any, trigger: Any, path: str, *args: Any, **named: Any) -> Any:
        return set_checkpoint(self, optim.EveryEpoch(), str(folder), *args, **named)

    def save_and_optimize(self: Any, *args: Any, **named: Any) -> Any:
        set_checkpoint(self, optim.EveryEpoch(), str(folder))
        return optimize(self, *args, **named)

    kind.set_checkpoint, kind.optimize = save_here, save_and_optimize


def _beginning(init: Callable[..., None], optim: Any, load_model: Callable[[str], Any], folder: Path) -> Callable[..., None]:
    def begin(self: Any, *args: Any, **named: Any) -> None:
        given = inspect.signature(init).bind(self, *args, **named)
        for state in states(folder):
            try:
                model = load_model(str(state.model))
                methods = {name: optim.OptimMethod.load(str(path)) for name, path in state.methods.items()}
            except Exception as error:  # a kill may have cut it off
                print("[switchyard: %s cannot be loaded: %s]" % (state.model, error))
                continue
            several = isinstance(given.arguments.get("optim_method"), dict)
            given.arguments["model"] = model
            given.arguments["optim_method"] = methods if several else next(iter(methods.values()))
            print("[switchyard: it goes on from %s]" % state.model)
            break
        init(*given.args, **given.kwargs)

    return begin


def main() -> None:
    """Runs the program in place of this file."""
    del sys.argv[0]
    program = sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    mark_executors(importlib.import_module("pyspark"))
    layers = importlib.import_module("bigdl.nn.layer")
    go_on(importlib.import_module("bigdl.optim.optimizer"), layers.Model.load, checkpoints())
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
