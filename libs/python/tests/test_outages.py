"""Training goes on whatever happens to the server, and what must not be lost is not lost."""

import contextlib
import io
import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import switchyard
from switchyard import _http
from switchyard._sender import Sender
from tests import jobapi
from tests.test_job import running, train


@contextlib.contextmanager
def backoff(seconds, timeout_seconds=jobapi.PATIENCE_SECONDS):
    """Fixes the length of a back-off, so that a test never depends on how long something takes."""
    with mock.patch.multiple(
        _http,
        FIRST_BACKOFF_SECONDS=seconds,
        LONGEST_BACKOFF_SECONDS=seconds,
        TIMEOUT_SECONDS=timeout_seconds,
    ):
        yield


@contextlib.contextmanager
def stderr():
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        yield said


class Outages(unittest.TestCase):
    def test_nobody_listens(self):
        with jobapi.serve() as api:
            pass
        with jobapi.environment(SWITCHYARD_JOB_API=api.url), stderr() as said:
            self.assertEqual([0, 1, 2], train(switchyard.job(), batches=200))
        self.assertEqual(1, said.getvalue().count("cannot reach the scheduler"), said.getvalue())

    def test_complaints_show_no_secrets(self):
        secret = "0123456789abcdef" * 4
        with running() as api, stderr() as said:
            api.status = 500
            client = _http.Client(_http.Address.parse(api.url + "/attempt/" + secret))
            client.post("/v1/jobs/%s/epochs" % secret, {})
        self.assertIn("POST /v1/jobs/(secret)/epochs: 500", said.getvalue())
        self.assertNotIn(secret, said.getvalue())

    def test_every_answer_is_500(self):
        with running() as api, backoff(3600.0), stderr() as said:
            api.status = 500
            self.assertEqual([0, 1, 2], train(switchyard.job()))
        self.assertIn("500 no; look", said.getvalue())
        # The question at the start failed; all was skipped until the last words, of which the first failed too.
        self.assertEqual(["GET job-1/control", "POST job-1/checkpoints", "POST job-1/end"], api.calls())

    def test_a_server_that_never_answers_is_not_waited_for(self):
        with running() as api, backoff(3600.0, timeout_seconds=0.05), stderr():
            api.gate.clear()
            self.assertEqual([0, 1, 2], train(switchyard.job(), batches=50))
        self.assertEqual(["GET job-1/control", "POST job-1/checkpoints", "POST job-1/end"], api.calls())

    def test_steps_do_not_wait_for_a_slow_server(self):
        with running(HEARTBEAT_FREQ=1) as api:
            job = switchyard.job()
            api.gate.clear()
            job.step()
            api.wait_for(2)
            for _ in range(1000):
                job.step()
            # The first heartbeat is still unanswered: at most one more waits, the rest is gathered.
            self.assertEqual(2, len(api.requests))
            self.assertLessEqual(len(job._link._sender._posts), 1)
            api.gate.set()
            job.end_epoch()
        self.assertEqual(1001, sum(beat["steps"] for beat in api.bodies("steps")))

    def test_epochs_and_checkpoints_survive_an_outage_in_order(self):
        with running(EPOCHS_TO_BE_DONE=4) as api, backoff(3600.0), stderr():
            job = switchyard.job()
            api.status = 503
            for epoch in range(3):
                job.save(epoch, "state", epochs_done=epoch + 1)
                job.end_epoch()
            refused = len(api.requests)
            api.status = 200
            job._link._client._succeeded()  # The back-off is over.
            job.end_epoch()
            job.finish()
        accepted = api.requests[refused:]
        self.assertEqual([1, 2, 3, 4], [r.body["epochs_done"] for r in accepted if r.path.endswith("/epochs")])
        self.assertEqual([1, 2, 3], [r.body["epochs_done"] for r in accepted if r.path.endswith("/checkpoints")])
        self.assertTrue(accepted[-1].path.endswith("/end"))

    def test_what_does_not_arrive_is_left_for_the_scheduler_in_order(self):
        with tempfile.TemporaryDirectory() as left, running(SWITCHYARD_UNREPORTED=left) as api, backoff(3600.0), stderr():
            job = switchyard.job()
            api.status = 503
            job.save("one", "state", epochs_done=1)
            job.end_epoch()
            job.finish()
            names = sorted(os.listdir(left))
            posts = [json.loads(Path(left, name).read_text()) for name in names]
        self.assertEqual(
            [("checkpoints", 1), ("epochs", 1), ("end", 1)],
            [(post["path"].replace("/v1/jobs/job-1/", ""), post["body"]["epochs_done"]) for post in posts],
        )

    def test_what_has_arrived_or_was_refused_is_not_left(self):
        for status in (200, 400, 409):
            with self.subTest(status=status), tempfile.TemporaryDirectory() as left:
                with running(SWITCHYARD_UNREPORTED=left) as api, stderr():
                    api.status = status
                    train(switchyard.job())
                self.assertEqual([], os.listdir(left))

    def test_a_kill_leaves_what_was_not_sent(self):
        script = "import os, switchyard; job = switchyard.job(); job.save(1, 'state', epochs_done=1); os._exit(9)"
        with tempfile.TemporaryDirectory() as left, jobapi.serve() as api, jobapi.environment() as folder:
            api.gate.clear()  # Nothing is answered.
            file = folder / "script.py"
            file.write_text(script)
            table = jobapi.variables(str(folder), SWITCHYARD_JOB_API=api.url, SWITCHYARD_UNREPORTED=left)
            self.assertEqual(9, jobapi.run_script(file, table).returncode)
            api.gate.set()
            self.assertEqual([True], ["/checkpoints" in Path(left, name).read_text() for name in os.listdir(left)])

    def test_a_folder_without_room_costs_nothing(self):
        with running(SWITCHYARD_UNREPORTED="/none/at/all") as api, stderr():
            self.assertEqual([0, 1, 2], train(switchyard.job()))
        self.assertEqual(3, len(api.bodies("epochs")))

    def test_a_refused_body_is_dropped_and_shown(self):
        with running() as api, stderr() as said:
            job = switchyard.job()
            api.status = 400
            job.end_epoch()
            api.status = 200
            job.end_epoch()
        self.assertIn("was refused: 400 no; look", said.getvalue())
        self.assertEqual([1, 2], [body["epochs_done"] for body in api.bodies("epochs")])

    def test_a_server_that_comes_back_on_the_same_address_is_found_again(self):
        with backoff(0.01), stderr():
            with jobapi.serve() as first:
                pass
            with jobapi.environment(SWITCHYARD_JOB_API=first.url):
                job = switchyard.job()
                job.end_epoch()
                with jobapi.serve(port=first.port) as second:
                    second.wait_for(1)
                    job.finish()
        self.assertEqual(1, second.bodies("epochs")[0]["epochs_done"])

    def test_a_fenced_attempt_leaves_after_its_epoch_and_keeps_its_hands_off_the_checkpoint(self):
        with running() as api, stderr() as said:
            job = switchyard.job()
            job.save("newer", "state.pkl")
            job._link._sender.flush()
            api.status = 409
            job.end_epoch()
            self.assertTrue(job.should_stop())
            asked = len(api.requests)
            job.save("older", "state.pkl")
            self.assertEqual([], train(job))
            self.assertEqual(asked, len(api.requests))
            self.assertEqual("newer", job.load("state.pkl"))
        self.assertEqual(1, said.getvalue().count("replaced by a newer one"), said.getvalue())
        self.assertIn("state.pkl not written", said.getvalue())

    def test_control_that_is_no_control_is_shown_and_ignored(self):
        for said_by_server in ([], "text", None):
            with self.subTest(said=said_by_server), running() as api, stderr() as said:
                api.control = said_by_server
                self.assertFalse(switchyard.job().should_stop())
            self.assertIn("no control record", said.getvalue())


class Roads(unittest.TestCase):
    def test_a_unix_socket(self):
        for names in (("SWITCHYARD_JOB_SOCKET", ""), ("SWITCHYARD_JOB_API", "unix://")):
            with self.subTest(names=names), jobapi.environment() as folder:
                path = str(folder / "job.sock")
                with jobapi.serve(socket_path=path) as api:
                    table = {names[0]: names[1] + path, "SWITCHYARD_JOB_API_PREFIX": "/attempt/t0k3n"}
                    with mock.patch.dict(os.environ, table):
                        train(switchyard.job())
                self.assertEqual("/attempt/t0k3n/v1/jobs/job-1/end", api.requests[-1].path)

    def test_addresses(self):
        cases = [
            ("http://127.0.0.1:80/attempt/t/", ("127.0.0.1", 80, "", "/attempt/t")),
            ("host", ("host", 80, "", "")),
            ("host:99", ("host", 99, "", "")),
            ("unix:///run/job.sock", ("localhost", 0, "/run/job.sock", "")),
        ]
        for text, want in cases:
            with self.subTest(text=text):
                self.assertEqual(want, tuple(_http.Address.parse(text)))
        for text in ("https://host", "host:port", "http://"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                _http.Address.parse(text)

    def test_an_id_stays_one_segment(self):
        with running(JOB_UUID="a b?c") as api:
            switchyard.job().finish()
        self.assertEqual({"/attempt/t0k3n/v1/jobs/a%20b%3Fc"}, {r.path.rsplit("/", 1)[0] for r in api.requests})


class Sending(unittest.TestCase):
    def test_a_body_that_cannot_be_made_does_not_end_the_thread(self):
        with jobapi.serve() as api, stderr() as said:
            client, sender = _http.Client(_http.Address.parse(api.url)), Sender()
            sender.post(client, "/bad", lambda: float("nan"), keep=True)
            sender.post(client, "/good", lambda: 1)
            self.assertTrue(sender.flush())
        self.assertEqual(["/attempt/t0k3n/good"], [request.path for request in api.requests])
        self.assertIn("cannot report to /bad", said.getvalue())

    @unittest.skipUnless(hasattr(os, "fork"), "this system has no fork")
    def test_a_forked_child_sends_its_own_posts_only(self):
        with jobapi.serve() as api, stderr():
            client, sender = _http.Client(_http.Address.parse(api.url)), Sender()
            api.gate.clear()
            sender.post(client, "/first", lambda: 1)
            api.wait_for(1)
            sender.post(client, "/parent", lambda: 1)
            child = os.fork()
            if child == 0:
                sender.post(client, "/child", lambda: 1)
                os._exit(0 if [post.path for post in sender._posts] in ([], ["/child"]) else 1)
            _, status = os.waitpid(child, 0)
            self.assertEqual(0, status)
            api.gate.set()
            self.assertTrue(sender.flush())
        self.assertEqual(1, sum(request.path.endswith("/parent") for request in api.requests))


if __name__ == "__main__":
    unittest.main()
