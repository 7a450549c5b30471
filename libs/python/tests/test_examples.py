"""The examples as jobs: run, stopped, killed, resumed, each in a process of its own."""

import hashlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

from tests import jobapi

PYTHON = jobapi.EXAMPLES / "python"
NETWORKS = jobapi.EXAMPLES / "networks"
SEED004 = jobapi.EXAMPLES / "seed004"
SMALL = {"TRAINING_SET_SIZE": 64, "BATCH_SIZE": 8, "NUM_GPUS": 1, "EPOCHS_TO_BE_DONE": 4}


def weights(output):
    """The fingerprint that each epoch's line ends with, by epoch."""
    return {int(epoch): digest for epoch, digest in re.findall(r"^epoch (\d+) .*weights (\w+)$", output, re.M)}


class Example(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def table(self, api=None, snapshots="snapshots", **changes):
        (self.folder / snapshots).mkdir(exist_ok=True)
        if api is not None:
            changes["SWITCHYARD_JOB_API"] = api.url
        return jobapi.variables(str(self.folder / snapshots), **dict(SMALL, **changes))

    def succeed(self, script, table, **more):
        done = jobapi.run_script(script, table, **more)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout


class SmallNetwork(Example):
    def test_both_scripts_train_the_same_weights(self):
        plain = weights(self.succeed(PYTHON / "train_mlp.py", self.table(snapshots="a")))
        kube = weights(self.succeed(PYTHON / "train_kube.py", self.table(snapshots="b")))
        self.assertEqual([1, 2, 3, 4], sorted(plain))
        self.assertEqual(4, len(set(plain.values())))
        self.assertEqual(plain, kube)

    def test_learns(self):
        output = self.succeed(PYTHON / "train_mlp.py", self.table(TRAINING_SET_SIZE=200, EPOCHS_TO_BE_DONE=6))
        accuracy = [float(value) for value in re.findall(r"accuracy (\S+)", output)]
        self.assertGreater(accuracy[-1], accuracy[0] + 0.2)

    def test_stopped_and_resumed_it_ends_with_the_weights_of_an_uninterrupted_run(self):
        whole = weights(self.succeed(PYTHON / "train_mlp.py", self.table(snapshots="whole")))
        with jobapi.serve() as api:
            api.control = dict(api.control, stop=True)
            first = weights(self.succeed(PYTHON / "train_mlp.py", self.table(api)))
            self.assertEqual(("stopped", 1), tuple(api.bodies("end")[0][key] for key in ("outcome", "epochs_done")))
            api.control = dict(api.control, stop=False)
            resumed = self.table(api, JOB_RESTARTED="TRUE", EPOCHS_DONE=1)
            second = weights(self.succeed(PYTHON / "train_mlp.py", resumed))
        self.assertEqual(([1], [2, 3, 4]), (sorted(first), sorted(second)))
        self.assertEqual(whole, {**first, **second})
        self.assertEqual([1, 2, 3, 4], [body["epochs_done"] for body in api.bodies("epochs")])
        self.assertTrue(all(body["grad_sqr"] >= 0 <= body["grad_var"] for body in api.bodies("epochs")))

    def test_kube_is_preempted_at_the_first_step_and_resumed(self):
        whole = weights(self.succeed(PYTHON / "train_kube.py", self.table(snapshots="whole")))
        with jobapi.serve() as api:
            answers = iter([b"0", b"1"])
            api.has_to_stop = lambda: next(answers, b"0")
            first = weights(self.succeed(PYTHON / "train_kube.py", self.table(api)))
            resumed = self.table(api, JOB_RESTARTED="TRUE", EPOCHS_DONE=1)
            second = weights(self.succeed(PYTHON / "train_kube.py", resumed))
        self.assertEqual(whole, {**first, **second})
        done = [r.body["done"] for r in api.requests if "/end_epoch/" in r.path]
        self.assertEqual(([1], [2, 3, 4], [1, 2, 3, 4]), (sorted(first), sorted(second), done))

    def kill_after_first_epoch(self, script, ledger, signal_number):
        """Starts script, kills it while it waits for an answer after its first epoch, and returns its status."""
        with jobapi.serve() as api:
            table = self.table(api, TRAIN_LEDGER=ledger, PYTHONPATH=jobapi.LIBRARY, SWITCHYARD_JOB="shown")
            api.hold_from = lambda calls: calls.count("GET has_to_stop/job-1") == 2 or "POST job-1/epochs" in calls
            with subprocess.Popen(
                [sys.executable, str(script)], env=table, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as process:
                api.wait_until_held()
                process.send_signal(signal_number)
            return process.returncode

    def test_killed_and_resumed_it_ends_with_the_weights_of_an_uninterrupted_run(self):
        for name in ("train_mlp.py", "train_kube.py"):
            for signal_number, status, last in (
                (signal.SIGKILL, -signal.SIGKILL, "epoch"),
                (signal.SIGTERM, 128 + signal.SIGTERM, "exit"),
            ):
                with self.subTest(name=name, signal=signal_number):
                    self.setUp()
                    whole = weights(self.succeed(PYTHON / name, self.table(snapshots="whole")))
                    ledger = self.folder / "ledger.jsonl"
                    self.assertEqual(status, self.kill_after_first_epoch(PYTHON / name, ledger, signal_number))
                    events = [json.loads(line) for line in ledger.read_text().splitlines()]
                    self.assertEqual(("start", last), (events[0]["event"], events[-1]["event"]))
                    self.assertEqual({"shown"}, {event["job"] for event in events})
                    self.assertEqual(
                        {"event", "job", "attempt", "pid", "rank", "epoch", "devices", "unix_seconds"}, set(events[0])
                    )
                    # What the scheduler believes is off by one on purpose: the checkpoint decides.
                    resumed = self.table(JOB_RESTARTED="TRUE", EPOCHS_DONE=2, TRAIN_LEDGER=ledger)
                    after = weights(self.succeed(PYTHON / name, resumed))
                    self.assertEqual(whole[4], after[4])
                    self.assertEqual("exit", json.loads(ledger.read_text().splitlines()[-1])["event"])

    def test_runs_without_a_scheduler(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ):
            before = os.getcwd()
            os.chdir(folder)
            self.addCleanup(os.chdir, before)
            output = self.succeed(PYTHON / "train_mlp.py", {"TRAINING_SET_SIZE": "32", "BATCH_SIZE": "16"})
            os.chdir(before)
            self.assertEqual(5, len(weights(output)))
            self.assertTrue(Path(folder, "checkpoints", "mlp.pkl").exists())


class Torch(Example):
    def setUp(self):
        super().setUp()
        found = subprocess.run([sys.executable, "-c", "import torch"], stderr=subprocess.DEVNULL)
        if found.returncode != 0:
            self.skipTest("this python has no torch")

    def test_lenet_learns_and_goes_on_from_its_checkpoint(self):
        table = self.table(TRAINING_SET_SIZE=512, BATCH_SIZE=32, EPOCHS_TO_BE_DONE=2)
        self.succeed(PYTHON / "train_torch.py", table)
        output = self.succeed(PYTHON / "train_torch.py", dict(table, EPOCHS_TO_BE_DONE="5", EPOCHS_DONE="2", JOB_RESTARTED="TRUE"))
        epochs = re.findall(r"^epoch (\d+) accuracy (\S+)$", output, re.M)
        self.assertEqual(["3", "4", "5"], [number for number, _ in epochs])
        self.assertGreater(float(epochs[-1][1]), 0.5)

    def test_each_network_trains_an_epoch(self):
        table = self.table(TRAINING_SET_SIZE=32, BATCH_SIZE=16, EPOCHS_TO_BE_DONE=1)
        for network in ("resnet", "bert", "yolo", "deepspeech", "ncf"):
            with self.subTest(network=network):
                output = self.succeed(NETWORKS / "train.py", table, arguments=[network])
                self.assertRegex(output, r"epoch 1 accuracy [01]\.\d+")


class Seed004(Example):
    # sha256 of the guide's listing, from the line after its opening fence to the line before its closing one.
    LISTING = "dd8e2e2dbf68e9e43d5a8f2da791bbe3167833e2c4f8d9833cc90bf7dceb183b"

    def test_the_pytorch_script_is_the_guides(self):
        self.assertEqual(self.LISTING, hashlib.sha256((SEED004 / "pytorch.py").read_bytes()).hexdigest())

    def need_torch(self):
        found = subprocess.run([sys.executable, "-c", "import torch"], stderr=subprocess.DEVNULL)
        if found.returncode != 0:
            self.skipTest("this python has no torch")

    def test_pytorch_runs_is_preempted_and_resumed(self):
        self.need_torch()
        table = dict(TRAINING_SET_SIZE=40, BATCH_SIZE=8, EPOCHS_TO_BE_DONE=3, HEARTBEAT_FREQ=3)
        path = str(SEED004 / "sitecustomize")
        beat, end = ["POST profiling/job-1"], ["POST profiling/job-1", "POST end_epoch/job-1"]
        ask = ["GET has_to_stop/job-1"]
        with jobapi.serve() as api:
            output = self.succeed(SEED004 / "pytorch.py", self.table(api, **table), path=path)
            self.assertIn("Scheduler assigned 1 gpus", output)
            # 5 steps an epoch, 14 intervals between 15 steps: heartbeats after 3; 6 and 9; 12.
            self.assertEqual(ask + beat + end + ask + 2 * beat + end + ask + beat + end, api.calls())
            beats = [r.body["iternum"] for r in api.requests if "meandur" in (r.body or {})]
            self.assertEqual([3, 4, 6, 9, 9, 12, 14], beats)
        with jobapi.serve() as api:
            answers = iter([b"0", b"1"])
            api.has_to_stop = lambda: next(answers, b"0")
            self.succeed(SEED004 / "pytorch.py", self.table(api, **table, snapshots="again"), path=path)
            self.assertEqual(ask + beat + end + ask, api.calls())
            saved = self.folder / "again" / "job-1" / "cifar_net.pth"
            self.assertTrue(saved.is_file())
            before = len(api.requests)
            resumed = self.table(api, **table, snapshots="again", JOB_RESTARTED="TRUE", EPOCHS_DONE=1)
            self.succeed(SEED004 / "pytorch.py", resumed, path=path)
            self.assertEqual(ask + beat + end + ask + 2 * beat + end, api.calls()[before:])
        done = [r.body["done"] for r in api.requests if "/end_epoch/" in r.path]
        self.assertEqual([1, 2, 3], done)

    def test_sitecustomize_changes_cuda_only_where_there_is_none(self):
        fake = self.folder / "torch"
        fake.mkdir()
        for available, want in ((False, "stayed stayed"), (True, "moved moved")):
            with self.subTest(available=available):
                (fake / "__init__.py").write_text(
                    "import types\n"
                    "cuda = types.SimpleNamespace(is_available=lambda: %r)\n"
                    "class Tensor:\n    def cuda(self): return 'moved'\n"
                    "nn = types.SimpleNamespace(Module=type('Module', (), {'cuda': Tensor.cuda}))\n" % available
                )
                script = self.folder / "script.py"
                script.write_text(
                    "import sys\nassert 'torch' not in sys.modules\nimport torch\n"
                    "for thing in (torch.Tensor(), torch.nn.Module()):\n"
                    "    moved = thing.cuda()\n"
                    "    print('stayed' if moved is thing else moved, end=' ')\n"
                )
                environ = {"PATH": os.environ.get("PATH", ""), "PYTHONDONTWRITEBYTECODE": "1"}
                output = self.succeed(script, environ, path=str(SEED004 / "sitecustomize"))
                self.assertEqual(want, output.strip())


class Corrected(unittest.TestCase):
    """The two listings whose frameworks are not here, by the order in which their hooks speak to the scheduler."""

    def load(self, name, modules):
        with mock.patch.dict(sys.modules, modules), mock.patch.object(sys, "path", list(sys.path)):
            spec = importlib.util.spec_from_file_location("corrected_" + name, SEED004 / (name + ".py"))
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        return module

    def check(self, drive):
        with jobapi.serve() as api, jobapi.environment(SWITCHYARD_JOB_API=api.url, HEARTBEAT_FREQ=1):
            drive()
        want = ["GET has_to_stop/job-1"] + 3 * ["POST profiling/job-1"] + ["POST end_epoch/job-1"]
        self.assertEqual(want, api.calls())

    def test_lightning(self):
        base = type("LightningModule", (), {"log": lambda *_: None})
        fakes = {name: mock.MagicMock() for name in (
            "torch", "torch.nn", "torch.nn.functional", "torch.utils", "torch.utils.data", "torchvision",
            "torchvision.models", "torchvision.datasets")}  # fmt: skip
        fakes["pytorch_lightning"] = types.SimpleNamespace(LightningModule=base, Trainer=None)
        module = self.load("lightning", fakes)

        def drive():
            net = module.TestNN()
            net.on_train_epoch_start()
            for index in range(3):
                net.training_step((1, 2), index)
            net.on_train_epoch_end()

        self.check(drive)

    def test_tensorflow(self):
        keras = types.SimpleNamespace(callbacks=types.SimpleNamespace(Callback=object))
        fakes = {"numpy": mock.MagicMock(), "tensorflow": types.SimpleNamespace(keras=keras)}
        module = self.load("tensorflow", fakes)

        def drive():
            callback = module.KubeProfilerCallback(module.kubeprofiler.KubeProfiler())
            callback.on_epoch_begin(0)
            for index in range(3):
                callback.on_train_batch_end(index)
            callback.on_epoch_end(0)

        self.check(drive)


if __name__ == "__main__":
    unittest.main()
