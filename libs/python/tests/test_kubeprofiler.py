"""KubeProfiler against a real server: attributes, sequence, stopping, outages."""

import contextlib
import copy
import io
import json
import os
import pickle
import re
import stat
import unittest
from pathlib import Path
from unittest import mock

from kubernetesdlprofile import kubeprofiler
from switchyard import _http
from tests import jobapi

PROFILE_KEYS = ["jobid", "timestamp", "iternum", "nodelist", "numgpu", "rank", "meandur", "gpumem"]


def train_epoch(profiler, steps=4):
    profiler.start_epoch()
    for _ in range(steps):
        profiler.measure()
    profiler.end_epoch()


def shape(method, path, text):
    """A request with its durations, times and memory replaced by their kind, keys and their order kept."""
    if not text:
        return "%s %s" % (method, path)
    body = json.loads(text)
    for key in ("timestamp", "meandur", "epochDur", "gpumem"):
        if key in body:
            body[key] = type(body[key]).__name__
    return "%s %s %s" % (method, path, json.dumps(body))


class Sequence(unittest.TestCase):
    # The trace's run: one epoch done of four, a heartbeat every third step, four steps an epoch.
    CHANGES = {"EPOCHS_DONE": 1, "EPOCHS_TO_BE_DONE": 4, "HEARTBEAT_FREQ": 3, "JOB_RESTARTED": "TRUE"}

    def play(self):
        with contextlib.ExitStack() as stack:
            api = stack.enter_context(jobapi.serve())
            changes = dict(self.CHANGES, SWITCHYARD_JOB_MANAGER="127.0.0.1:%d" % api.port)
            stack.enter_context(jobapi.environment(**changes))
            answers = iter([b"0", b"0", b"1"])
            api.has_to_stop = lambda: next(answers)
            profiler = kubeprofiler.KubeProfiler()
            train_epoch(profiler)
            train_epoch(profiler)
            # With EPOCHS-1 behind it the last epoch runs to its end whatever is answered.
            train_epoch(profiler)
        return api.requests

    def test_a_run_is_the_same_requests_in_the_same_order(self):
        common = '"jobid": "job-1", "timestamp": "str", '
        tail = '"nodelist": "nodeA,nodeB", "numgpu": 2, "rank": 0, "meandur": "float", "gpumem": "int"'
        expected = []
        for done, heartbeat, total in ((2, 3, 3), (3, 6, 7)):
            expected += [
                "GET /has_to_stop/job-1",
                'POST /profiling/job-1 {%s"iternum": %d, %s}' % (common, heartbeat, tail),
                'POST /profiling/job-1 {%s"iternum": %d, %s, "epochDur": "float"}' % (common, total, tail),
                'POST /end_epoch/job-1 {"done": %d}' % done,
            ]
        requests = self.play()
        self.assertEqual(expected, [shape(r.method, r.path, r.text) for r in requests[:8]])
        self.assertEqual({"application/json"}, {r.content_type for r in requests if r.method == "POST"})
        self.assertEqual({None}, {r.content_type for r in requests if r.method == "GET"})
        for request in requests:
            if request.body and "timestamp" in request.body:
                self.assertRegex(request.body["timestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?$")

    def test_a_run_has_the_shape_of_the_recorded_trace(self):
        data = os.environ.get("SWITCHYARD_DATA")
        trace = Path(data or "/nonexistent", "kubeapi", "wire_trace_head.log")
        if not trace.is_file():
            self.skipTest("SWITCHYARD_DATA names no folder with kubeapi/wire_trace_head.log")
        lines = trace.read_text().splitlines()
        recorded = []
        for line in lines:
            get = re.match(r"(GET) (\S+) -> [01]$", line)
            post = re.match(r"(POST) (\S+) application/json (.*)$", line)
            recorded.append(shape(*get.groups(), "") if get else shape(*post.groups()))
        played = [shape(r.method, r.path, r.text) for r in self.play()[:9]]
        self.assertEqual(recorded[:9], played)


class Attributes(unittest.TestCase):
    def test_are_read_from_the_environment(self):
        with jobapi.environment(EPOCHS_DONE=1, NODE_RANK=1, NUM_NODES=2, LOCAL_RANK=3) as snapshots:
            profiler = kubeprofiler.KubeProfiler()
            expected = {
                "JOBID": "job-1", "RESTARTED": False, "EPOCHS_DONE": 1, "PROFILE_EACH": 3, "NODE_LIST": "nodeA,nodeB",
                "NUM_GPUS": 2, "NUM_NODES": 2, "RANK": 1, "BATCH_SIZE": 8, "EPOCHS": 3, "TRAINING_SET_SIZE": 64,
                "LOCAL_RANK": 3, "iterationPerEpoch": 2, "maxIterations": 6, "epoch": 1,
                "root_dir": str(snapshots / "job-1"),
            }  # fmt: skip
            self.assertEqual(expected, {name: getattr(profiler, name) for name in expected})
            self.assertFalse(hasattr(profiler, "ckpt_path"))
            self.assertTrue(os.path.isdir(profiler.root_dir))

    def test_local_rank_is_minus_one_when_unset(self):
        with jobapi.environment():
            self.assertEqual(-1, kubeprofiler.KubeProfiler().LOCAL_RANK)

    def test_only_false_means_not_restarted(self):
        for value, restarted in ((None, True), ("TRUE", True), ("false", True), ("FALSE", False)):
            with self.subTest(value=value), jobapi.environment(JOB_RESTARTED=value):
                self.assertIs(restarted, kubeprofiler.KubeProfiler().RESTARTED)

    def test_root_dir_is_under_snapshots_by_default_and_needs_no_parent(self):
        with jobapi.environment(SWITCHYARD_SNAPSHOTS_DIR=None, JOB_UUID="no-such-job"):
            with mock.patch.object(kubeprofiler, "make_snapshot_dir") as made:
                self.assertEqual("/snapshots/no-such-job", kubeprofiler.KubeProfiler().root_dir)
            made.assert_called_once_with(Path("/snapshots/no-such-job"))
        with jobapi.environment(SWITCHYARD_SNAPSHOTS_DIR="/nonexistent/parent"):
            self.assertFalse(os.path.isdir(kubeprofiler.KubeProfiler().root_dir))

    def test_missing_variables_are_named(self):
        with jobapi.environment(BATCH_SIZE=None, JOB_UUID=None):
            with self.assertRaisesRegex(EnvironmentError, "JOB_UUID, BATCH_SIZE"):
                kubeprofiler.KubeProfiler()

    def test_ckpt_path(self):
        cases = [
            ("nothing saved", [], "tf_ckpt"),
            ("one version", ["version_0/checkpoints/a.ckpt"], "lightning_logs/version_0/checkpoints/a.ckpt"),
            ("numeric order", ["version_9/checkpoints/a.ckpt", "version_10/checkpoints/b.ckpt"],
             "lightning_logs/version_10/checkpoints/b.ckpt"),
            ("newest without a checkpoint", ["version_0/checkpoints/a.ckpt", "version_1/hparams.yaml"],
             "lightning_logs/version_0/checkpoints/a.ckpt"),
            ("other folders", ["other/x", "version_0/checkpoints/b", "version_0/checkpoints/a"],
             "lightning_logs/version_0/checkpoints/a"),
        ]  # fmt: skip
        for name, files, expected in cases:
            with self.subTest(name), jobapi.environment(JOB_RESTARTED="TRUE") as snapshots:
                for file in files:
                    path = snapshots / "job-1" / "lightning_logs" / file
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text("")
                self.assertEqual(str(snapshots / "job-1" / expected), kubeprofiler.KubeProfiler().ckpt_path)

    def test_addresses(self):
        job_api = "http://127.0.0.1:1/attempt/t"
        cases = [
            ({}, {}, None, None),
            ({}, {"SWITCHYARD_JOB_MANAGER": "h:7"}, ("h", 7, ""), ("h", 7, "")),
            ({}, {"SWITCHYARD_JOB_API": job_api, "SWITCHYARD_JOB_MANAGER": "h:7"},
             ("127.0.0.1", 1, "/attempt/t"), ("127.0.0.1", 1, "/attempt/t")),
            ({"job_manager_hostname": "jm", "db_hostname": "db:9"}, {"SWITCHYARD_JOB_API": job_api},
             ("jm", 80, ""), ("db", 9, "")),
            ({"db_hostname": "db:9"}, {}, None, ("db", 9, "")),
        ]  # fmt: skip
        for arguments, changes, job_manager, profile_store in cases:
            with self.subTest(arguments=arguments, changes=changes), jobapi.environment(**changes):
                profiler = kubeprofiler.KubeProfiler(**arguments)
                for client, want in ((profiler._job_manager, job_manager), (profiler._profile_store, profile_store)):
                    address = client and (client._address.host, client._address.port, client._address.prefix)
                    self.assertEqual(want, address)


class Stopping(unittest.TestCase):
    def run_until_exit(self, answer, epochs_done=0):
        """Epochs ended and steps measured until the process would have left (None: it did not)."""
        with jobapi.serve() as api, jobapi.environment(SWITCHYARD_JOB_API=api.url, EPOCHS_DONE=epochs_done):
            api.has_to_stop = lambda: answer
            profiler = kubeprofiler.KubeProfiler()
            ended = 0
            try:
                for _ in range(3 - epochs_done):
                    train_epoch(profiler)
                    ended += 1
            except SystemExit as leaving:
                self.assertIsNone(leaving.code)
                return ended, profiler.iterations, api
            return ended, None, api

    def test_leaves_at_the_first_step_of_the_epoch_that_was_answered_1(self):
        ended, iterations, api = self.run_until_exit(b"1")
        self.assertEqual((0, 0), (ended, iterations))
        self.assertEqual(["GET has_to_stop/job-1"], api.calls())
        self.assertEqual("/attempt/t0k3n/has_to_stop/job-1", api.requests[0].path)

    def test_only_a_body_of_exactly_1_stops(self):
        for answer in (b"0", b"1\n", b'"1"', b"true", b""):
            with self.subTest(answer=answer):
                ended, iterations, _ = self.run_until_exit(answer)
                self.assertEqual((3, None), (ended, iterations))

    def test_the_last_epoch_is_never_preempted(self):
        ended, iterations, api = self.run_until_exit(b"1", epochs_done=2)
        self.assertEqual((1, None), (ended, iterations))
        self.assertEqual([{"done": 3}], [r.body for r in api.requests if "/end_epoch/" in r.path])


class Trouble(unittest.TestCase):
    def train(self, epochs=3):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            profiler = kubeprofiler.KubeProfiler()
            for _ in range(epochs):
                train_epoch(profiler)
        self.assertEqual(3, profiler.epoch)
        return said.getvalue()

    def test_nobody_listens(self):
        with jobapi.serve() as api:
            pass
        with jobapi.environment(SWITCHYARD_JOB_API=api.url):
            said = self.train()
        self.assertEqual(1, said.count("cannot reach the scheduler"), said)

    def test_no_server_is_named(self):
        with jobapi.environment():
            self.assertEqual("", self.train())

    def test_a_server_that_never_answers_is_asked_once_a_backoff(self):
        with jobapi.serve() as api, jobapi.environment(SWITCHYARD_JOB_API=api.url):
            api.gate.clear()
            # A back-off longer than the test: all that follows the first failure is skipped.
            fixed = {"TIMEOUT_SECONDS": 0.05, "FIRST_BACKOFF_SECONDS": 3600.0, "LONGEST_BACKOFF_SECONDS": 3600.0}
            with mock.patch.multiple(_http, **fixed):
                self.train()
            self.assertEqual(["GET has_to_stop/job-1"], api.calls())

    def test_end_epoch_is_kept_through_an_outage(self):
        with jobapi.serve() as api, jobapi.environment(SWITCHYARD_JOB_API=api.url):
            api.status = 500
            with mock.patch.object(_http, "FIRST_BACKOFF_SECONDS", 0.01), contextlib.redirect_stderr(io.StringIO()):
                profiler = kubeprofiler.KubeProfiler()
                train_epoch(profiler)
                api.status = 200
                profiler._sender.last_words()
            accepted = [r.body for r in api.requests if "/end_epoch/" in r.path]
            self.assertEqual({"done": 1}, accepted[-1])

    def test_a_fenced_attempt_says_so_once_and_asks_no_more(self):
        with jobapi.serve() as api, jobapi.environment(SWITCHYARD_JOB_API=api.url):
            api.status = 409
            said = self.train()
            self.assertEqual(1, len(api.requests))
        self.assertEqual(1, said.count("replaced by a newer one"), said)

    def test_a_profiler_can_be_copied_and_pickled(self):
        with jobapi.serve() as api, jobapi.environment(SWITCHYARD_JOB_API=api.url):
            profiler = kubeprofiler.KubeProfiler()
            for twin in (copy.deepcopy(profiler), pickle.loads(pickle.dumps(profiler))):
                train_epoch(twin)
            self.assertEqual(2, api.calls().count("POST end_epoch/job-1"))


class Memory(unittest.TestCase):
    def test_comes_from_nvidia_smi(self):
        with jobapi.serve() as api, jobapi.environment(SWITCHYARD_JOB_API=api.url) as snapshots:
            tool = snapshots / "nvidia-smi"
            tool.write_text(
                "#!/bin/sh\ncat <<END\n<log><gpu><processes>"
                "<process_info><pid>1</pid><used_memory>5 MiB</used_memory></process_info>"
                "<process_info><pid>%d</pid><used_memory>1234 MiB</used_memory></process_info>"
                "</processes></gpu></log>\nEND\n" % os.getpid()
            )
            tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
            with mock.patch.dict(os.environ, PATH=str(snapshots) + os.pathsep + os.environ["PATH"]):
                train_epoch(kubeprofiler.KubeProfiler())
            profiles = [r.body for r in api.requests if "/profiling/" in r.path]
            self.assertEqual([1234, 1234], [profile["gpumem"] for profile in profiles])

    def test_is_zero_without_nvidia_smi(self):
        with jobapi.serve() as api, jobapi.environment(SWITCHYARD_JOB_API=api.url) as snapshots:
            with mock.patch.dict(os.environ, PATH=str(snapshots)):
                train_epoch(kubeprofiler.KubeProfiler())
            profiles = [r.body for r in api.requests if "/profiling/" in r.path]
            self.assertEqual([0, 0], [profile["gpumem"] for profile in profiles])
            self.assertEqual(PROFILE_KEYS, list(profiles[0]))

    def test_is_zero_where_it_is_not_available(self):
        report = b"<log><gpu><processes><process_info><pid>7</pid><used_memory>N/A</used_memory></process_info>"
        self.assertEqual(0, kubeprofiler._memory_in(report + b"</processes></gpu></log>", 7))


if __name__ == "__main__":
    unittest.main()
