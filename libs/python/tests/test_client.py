"""The client without an installation: what it reads from bytes, where it looks, and what it does about each answer."""

import json
import os
import tempfile
import unittest
from pathlib import Path

from switchyard.client import Away, Error, NotFound, Rejected, Unfinished
from switchyard.client._errors import Late
from switchyard.client._http import Answer, Reader, Request
from switchyard.client._place import Address, candidates
from switchyard.client._questions import Questions, _Events, _Lines
from switchyard.client._search import newest
from switchyard.client._steps import Ask, Give, Next, Now, Open, Pause, advance
from switchyard.client._submission import new_id, submission

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
# Each with the length of the pieces in which its body may come.
ANSWERS = {
    "with a length": HEAD + b"Content-Length: 11\r\n\r\nhello world",
    "in chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n6\r\nhello \r\n5;x=y\r\nworld\r\n0\r\nTrailer: x\r\n\r\n",
    "to the end": HEAD + b"\r\nhello world",
    "after another head": b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: 11\r\n\r\nhello world",
}


class Reading(unittest.TestCase):
    def test_answers_are_read_however_they_are_cut(self):
        for name, data in ANSWERS.items():
            for size in (1, 2, 3, 7, len(data)):
                with self.subTest(name=name, size=size):
                    reader, body = Reader(), b""
                    for at in range(0, len(data), size):
                        body += reader.feed(data[at : at + size])
                    if name == "to the end":
                        reader.feed(b"")
                    self.assertEqual((True, 200, b"hello world"), (reader.ended, reader.status, body))

    def test_an_answer_that_is_cut_off_is_no_answer(self):
        for name in ("with a length", "in chunks"):
            for end in (0, 10, len(ANSWERS[name]) - 1):
                reader = Reader()
                if end:
                    reader.feed(ANSWERS[name][:end])
                with self.assertRaises(Away):
                    reader.feed(b"")

    def test_what_is_no_http_is_named(self):
        with self.assertRaisesRegex(Away, "is this the service web"):
            Reader().feed(b"220 smtp\r\n\r\n")

    def test_lines_and_events_are_read_however_they_are_cut(self):
        output = "one\r\nzwölf\n\nend".encode()
        events = b": hello\n\nevent: changed\nid: a.1\ndata: {}\n\nevent: reload\nid: a.2\ndata: {}\n\nevent: half"
        for size in (1, 2, 5, 100):
            lines, reader, got, seen = _Lines(), _Events(), [], []
            for at in range(0, len(output), size):
                got += lines.feed(output[at : at + size])
            for at in range(0, len(events), size):
                seen += reader.feed(events[at : at + size])
            self.assertEqual(["one", "zwölf", "", "end"], got + list(lines.rest()))
            self.assertEqual([("changed", "a.1", "{}"), ("reload", "a.2", "{}")], seen)

    def test_a_gap_in_the_output_begins_a_line(self):
        lines = _Lines()
        self.assertEqual(["a"], list(lines.feed(b"a\nb")))
        self.assertEqual(["b", "[gap]"], list(lines.feed(b"[gap]\n", cut=True)))

    def test_a_request_says_whom_it_asks(self):
        text = Request("POST", "/a b", {"x": "1,2 &"}, {"y": 1}, {"Idempotency-Key": "k"}).encode("[::1]:80", "c=d")
        head, _, body = text.partition(b"\r\n\r\n")
        self.assertEqual(b"POST /a%20b?x=1%2C2+%26 HTTP/1.1", head.split(b"\r\n")[0])
        for line in (b"Host: [::1]:80", b"Cookie: c=d", b"Idempotency-Key: k", b"Content-Length: 8"):
            self.assertIn(line, head.split(b"\r\n"))
        self.assertEqual({"y": 1}, json.loads(body))


class Places(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def places(self, address=None, pid=0, **environ):
        context = {"data_dir": "/data", "nats": "nats://own", "pid": pid}
        (self.folder / "context.json").write_text(json.dumps(context))
        environ = dict({"SWITCHYARD_CONTEXT": str(self.folder / "context.json")}, **environ)
        return [(place.address.socket or str(place.address), place.bus) for place in candidates(address, environ)]

    def test_the_order_is_that_of_the_command_line(self):
        shared = ("/run/switchyard/web.sock", "")
        self.assertEqual([("/mine", "")], self.places("/mine", SWITCHYARD_SOCKET="/x"))
        self.assertEqual([("/x", "")], self.places(SWITCHYARD_SOCKET="/x", SWITCHYARD_NATS="nats://y"))
        self.assertEqual([("/data/web.sock", "nats://y")], self.places(SWITCHYARD_NATS="nats://y"))
        self.assertEqual([("/data/web.sock", "nats://own"), shared], self.places())
        self.assertEqual([shared], self.places(SWITCHYARD_CONTEXT=str(self.folder / "none")))

    def test_a_job_never_goes_to_the_machine_while_an_own_installation_runs(self):
        self.assertEqual([("/data/web.sock", "nats://own")], self.places(pid=os.getpid()))

    def test_the_data_folder_is_that_of_the_command_line(self):
        (self.folder / "switchyard").mkdir()
        (self.folder / "switchyard/context.json").write_text('{"data_dir": "/state"}')
        found = candidates(None, {"XDG_STATE_HOME": str(self.folder), "HOME": "/nowhere"})
        self.assertEqual("/state/web.sock", found[0].address.socket)

    def test_links_are_addresses(self):
        link = Address.parse("http://127.0.0.1:7470/#login=TOKEN")
        self.assertEqual(("127.0.0.1", 7470, "TOKEN", "127.0.0.1:7470"), (link.host, link.port, link.token, link.name))
        proxy = Address.parse("https://yard.example.org")
        self.assertEqual((443, True, ""), (proxy.port, proxy.tls, proxy.token))
        with self.assertRaisesRegex(Error, "switchyard open"):
            Address.parse("nats://127.0.0.1:4222")


class Submissions(unittest.TestCase):
    def test_a_command_runs_as_if_it_were_typed(self):
        environ = {"PATH": "/bin", "LC_ALL": "C", "SECRET": "no", "PATHS": "no"}
        spec = submission(["python3", "-u", "dir/train.py"], {"env": {"X": "1"}, "max_epochs": 3}, environ)
        self.assertEqual(("train", os.getcwd(), 3), (spec["name"], spec["work_dir"], spec["max_epochs"]))
        self.assertEqual({"PATH": "/bin", "LC_ALL": "C", "X": "1"}, spec["env"])
        self.assertEqual("torch.distributed.run", submission(["python3", "-m", "torch.distributed.run"], {}, {})["name"])

    def test_an_image_and_a_spec_stay_as_they_are(self):
        self.assertNotIn("work_dir", submission(["train"], {"image": "x"}, {"PATH": "/bin"}))
        self.assertEqual({"name": "a", "command": ["b"], "priority": 1}, submission({"name": "a", "command": ["b"]}, {"priority": 1}, {}))

    def test_a_command_in_one_text_is_refused(self):
        with self.assertRaisesRegex(Error, "list of its words"):
            submission("sleep 5", {}, {})

    def test_ids_are_valid_and_differ(self):
        self.assertRegex(new_id("My Net/2"), r"^my-net-2-[a-z2-7]{8}$")
        self.assertRegex(new_id("!!"), r"^job-[a-z2-7]{8}$")
        self.assertNotEqual(new_id("a"), new_id("a"))


class Service:
    """Answers questions by a script, and keeps a clock that moves only while they pause."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests, self.pauses, self.given, self.clock = [], [], [], 0.0

    def run(self, question, give=100):
        step = next(question)
        try:
            while True:
                if isinstance(step, Give):
                    self.given.append(step.item)
                    if len(self.given) == give:
                        return None
                step = advance(question, self.reply(step))
        except StopIteration as done:
            return done.value

    def reply(self, step):
        if isinstance(step, Now):
            return self.clock
        if isinstance(step, Pause):
            self.pauses.append(step.seconds)
            self.clock += step.seconds
            return None
        if isinstance(step, Give):
            return None
        if isinstance(step, (Ask, Open)):
            if step.request.path == "/api/v1":
                return Answer(200, {}, b'{"bus": "nats://own"}')
            self.requests.append(step.request)
        elif not isinstance(step, Next):
            raise AssertionError(step)
        return self.answers.pop(0)


def questions(**options):
    return Questions("/web.sock", {}, options.get("patience", 10.0))


def answer(body, status=200, **headers):
    return Answer(status, headers, json.dumps(body).encode())


PROBLEM = {"title": "Not Found", "status": 404, "detail": 'no job "x"', "fix": "`switchyard ps -A` lists the jobs"}


class Values(unittest.TestCase):
    def test_the_value_of_a_trial_is_the_newest_one(self):
        one, half, other, nan = {"loss": 1.0}, {"loss": 0.5}, {"metrics": {"x": 1}}, float("nan")
        lost, step = {"metrics": {"nonfinite_loss": 1}}, {"metrics": {"nonfinite_steps": 2}}
        for epochs, want in (
            ([one, half], 0.5), ([one, other], 1.0), ([other], None), ([], None), ([one, lost], nan), ([lost], nan), ([lost, half], 0.5),
            ([one, lost, other], nan), ([one, step], nan), ([step, one], 1.0), ([one, step, other], 1.0),
        ):
            with self.subTest(epochs=epochs):
                self.assertEqual(str(want), str(newest("loss", epochs)))
        accuracy = [{"metrics": {"accuracy": 0.75}}, {"metrics": {"nonfinite_accuracy": 1, "accuracy": 0.5}}]
        self.assertEqual(0.5, newest("accuracy", accuracy))


class Asking(unittest.TestCase):
    def test_a_problem_is_a_sentence(self):
        with self.assertRaises(NotFound) as caught:
            Service(answer(PROBLEM, 404)).run(questions().find("x"))
        self.assertEqual('Not Found: no job "x"; `switchyard ps -A` lists the jobs', str(caught.exception))
        self.assertEqual(404, caught.exception.status)

    def test_what_is_no_problem_is_told_as_it_is(self):
        with self.assertRaisesRegex(Error, "status 502: bad gateway"):
            Service(Answer(502, {}, b"bad gateway\n")).run(questions().find("x"))

    def test_a_request_that_came_too_early_waits(self):
        early = Answer(429, {"retry-after": "7"}, json.dumps(dict(PROBLEM, status=429)).encode())
        service = Service(early, early, answer({"job": {"id": "x"}}))
        self.assertEqual({"id": "x"}, service.run(questions().find("x")))
        self.assertEqual([7.0, 7.0], service.pauses)

    def test_a_service_that_starts_again_is_waited_for_as_long_as_patience_says(self):
        service = Service(*[Away("away")] * 5, answer({"job": {"id": "x"}}))
        self.assertEqual({"id": "x"}, service.run(questions().find("x")))
        with self.assertRaises(Away):
            Service(*[Away("away")] * 100).run(questions(patience=1.0).find("x"))

    def test_a_fact_is_sent_again_under_its_key(self):
        record = {"id": "x", "state": "running"}
        ended = dict(record, state="cancelled")
        service = Service(
            answer({"job": record}), Away("cut off"), answer({"subject": "s"}, 202), answer({"job": record}), answer({"jobs": [ended]})
        )  # fmt: skip
        self.assertEqual([ended], service.run(questions().cancel(["x"], "")))
        posts = [request for request in service.requests if request.method == "POST"]
        self.assertEqual([{"Idempotency-Key": "0"}] * 2, [dict(post.headers) for post in posts])

    def test_waiting_outlives_the_service(self):
        running, ended = {"id": "x", "state": "running"}, {"id": "x", "state": "succeeded"}
        held = answer({"jobs": [running]}, **{"last-event-id": "p.1"})
        away = [Away("away")] * 1000
        service = Service(answer({"job": running}), held, *away, answer({"jobs": []}), answer({"jobs": [ended]}))
        self.assertEqual([ended], service.run(questions().wait(["x"], None)))
        self.assertEqual("p.1", service.requests[2].query["since"])
        self.assertGreater(service.clock, 100)

    def test_waiting_ends_in_time(self):
        running = {"id": "x", "state": "running"}
        service = Service(answer({"job": running}), answer({"jobs": [running]}), Late("no answer in time"))
        with self.assertRaisesRegex(Unfinished, "1 of 1 jobs had not ended after 3 s") as caught:
            service.run(questions().wait(["x"], 3.0))
        self.assertEqual([running], caught.exception.jobs)

    def test_a_rejection_has_its_reasons(self):
        reason = {"code": "TooFewDevices", "field": "min_devices", "message": "want at least 9", "hint": "ask for fewer"}
        rejected = {"id": "x", "state": "rejected", "message": "no", "blockers": [reason]}
        service = Service(answer({"subject": "s"}, 202), answer({"jobs": [rejected]}))
        with self.assertRaisesRegex(Rejected, r"job x rejected:\n  TooFewDevices min_devices: want at least 9 \(ask for fewer\)"):
            service.run(questions().submit(["true"], "x", {}))

    def test_all_pages_of_a_list_are_read(self):
        service = Service(answer({"jobs": [{"id": "a"}], "next": "n"}), answer({"jobs": [{"id": "b"}]}))
        found = service.run(questions().jobs({"state": ["queued", "running"], "label": {"a": "b"}, "rejected": False, "user": None}))
        self.assertEqual(["a", "b"], [job["id"] for job in found])
        want = {"state": "queued,running", "label": "a=b", "rejected": "false", "limit": "10000"}
        self.assertEqual([want, dict(want, after="n")], [dict(request.query) for request in service.requests])

    def test_changes_go_on_where_they_were_cut_off(self):
        def event(name, number):
            return b'event: %s\nid: p.%d\ndata: {"plan": %d}\n\n' % (name, number, number)

        head = Answer(200, {}, b"")
        service = Service(head, event(b"changed", 1)[:20], event(b"changed", 1)[20:], Away("gone"), Away("gone"), head, b"",
                          head, event(b"reload", 2) + event(b"changed", 3))  # fmt: skip
        service.run(questions().changes(""), give=3)
        self.assertEqual([("p.1", False, {"plan": 1}), ("p.2", True, {}), ("p.3", False, {"plan": 3})], service.given)
        positions = [request.headers.get("Last-Event-ID") for request in service.requests]
        self.assertEqual([None, "p.1", "p.1", "p.1"], positions)


if __name__ == "__main__":
    unittest.main()
