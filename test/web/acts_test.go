package web

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// asked reports whether a job was asked for what a fact says.
func (a *alone) asked(job train.JobID, fact string) bool {
	a.t.Helper()
	_, err := a.bus.Last(a.ctx, event.StreamJobs, event.JobSubject(job, fact))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		a.t.Fatal(err)
	}
	return err == nil
}

// clickTwice clicks where the button with a text is, and once more at the same place after what the first click shows.
func (s *screen) clickTwice(text, shown string) {
	s.t.Helper()
	at, err := chromedp.Run(s.browser, chromedp.Evaluate[[]float64](fmt.Sprintf(
		`(() => { const r = [...document.querySelectorAll("button")].find((b) => b.innerText.startsWith(%q)).getBoundingClientRect(); return [r.x + 3, r.y + r.height / 2]; })()`, text)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.do(chromedp.MouseClickXY(at[0], at[1]))
	s.shows(shown)
	s.do(chromedp.MouseClickXY(at[0], at[1], chromedp.ClickCount(2)))
}

// A double-click on Cancel… only asks, about one job and about many: there is nothing to confirm under the pointer.
func TestADoubleClickCancelsNothing(t *testing.T) {
	a, s := openAlone(t)
	for _, id := range []train.JobID{"a", "b"} {
		put(t, a.bus, contract.Jobs, string(id), train.Job{ID: id, State: train.StateRunning, SubmittedAt: time.Now(), Spec: train.Spec{Name: string(id)}})
	}
	a.start()
	s.open(a.link())
	none := func() {
		t.Helper()
		s.shows("No, keep")
		if a.asked("a", event.FactCancelRequested) || a.asked("b", event.FactCancelRequested) || strings.Contains(s.text(), "asked to end") {
			t.Fatalf("a double-click cancels; the page says:\n%s", s.text())
		}
	}
	s.at("#/jobs")
	s.shows("live")
	s.do(chromedp.Click(`input[aria-label="choose all"]`))
	s.shows("2 jobs chosen")
	s.clickTwice("Cancel…", "Yes, cancel 2 jobs")
	none()
	s.at("#/jobs/a")
	s.shows("Timeline")
	s.clickTwice("Cancel…", "Yes, cancel it")
	none()
	s.press("No, keep it")
	s.press("Cancel…")
	s.press("Yes, cancel it")
	s.until("the job is asked to end", func() bool { return a.asked("a", event.FactCancelRequested) })
}

// The list of jobs comes in parts. What an event says meanwhile is newer than a part that comes late.
func TestALateListDoesNotBringBackWhatHasEnded(t *testing.T) {
	a, s := openAlone(t)
	job := train.Job{ID: "ends", State: train.StateRunning, SubmittedAt: time.Now(), Spec: train.Spec{Name: "ends"}}
	put(t, a.bus, contract.Jobs, "ends", job)
	gone := train.Job{ID: "gone", State: train.StateRunning, SubmittedAt: time.Now(), Spec: train.Spec{Name: "gone"}}
	put(t, a.bus, contract.Jobs, "gone", gone)
	a.start()
	// The second part is answered at once, and reaches the page when the test releases it.
	s.before(`const of = window.fetch;
		window.held = new Promise((go) => { window.release = go; });
		window.fetch = async (...q) => { const r = await of(...q); if (String(q[0]).includes("finished=10000")) { window.waits = true; await window.held; } return r; };`)
	s.open(a.link())
	s.at("#/jobs")
	s.shows("ends", "gone", "running")
	s.true("window.waits")
	job.State, job.FinishedAt = train.StateSucceeded, time.Now()
	put(t, a.bus, contract.Jobs, "ends", job)
	remove(t, a.bus, contract.Jobs, "gone")
	right := func() bool {
		t.Helper()
		table, err := chromedp.Run(s.browser, chromedp.Evaluate[string](`document.querySelector("tbody").innerText`))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(table, "succeeded") && !strings.Contains(table, "running") && !strings.Contains(table, "gone")
	}
	s.until("the events are shown", right)
	s.true("(window.release(), true)")
	s.shows("live")
	put(t, a.bus, contract.Jobs, "last", train.Job{ID: "last", State: train.StateQueued, SubmittedAt: time.Now(), Spec: train.Spec{Name: "last"}})
	s.shows("last")
	if !right() {
		t.Errorf("a list from before the events is shown:\n%s", s.text())
	}
}

// A page without a connection does not know whether the agents of nodes are there, so it says nothing of them.
func TestAPageThatIsCutOffMissesNoAgent(t *testing.T) {
	a, s := openAlone(t)
	now := time.Now()
	put(t, a.bus, contract.Nodes, "n1", train.Node{ID: "n1", Name: "rack-1", SeenAt: now})
	put(t, a.bus, contract.Jobs, "late", train.Job{ID: "late", State: train.StateQueued, SubmittedAt: now, Spec: train.Spec{Name: "late", Deadline: new(now.Add(5 * time.Minute))}})
	a.start()
	s.open(a.link())
	s.shows("live", "rack-1")
	a.kill()
	s.shows("no connection")
	s.true(`(() => { const now = Date.now; Date.now = () => now() + 600_000; return true; })()`) // ten minutes pass
	s.shows("late has passed its deadline")
	if text := s.text(); strings.Contains(text, "is away") || strings.Contains(text, "agent away") {
		t.Errorf("the page judges the agent of a node without having asked:\n%s", text)
	}
}

// A session that has ended elsewhere, or of itself, ends at the page too.
func TestThePageEndsWithItsSession(t *testing.T) {
	a, s := openAlone(t)
	a.start()
	s.open(a.link())
	s.shows("live")
	s.true(`(() => { fetch("/api/v1/session", { method: "DELETE" }).then((r) => { window.ended = r.ok; }); return true; })()`)
	s.true("window.ended")
	put(t, a.bus, contract.Jobs, "later", train.Job{ID: "later", State: train.StateQueued, SubmittedAt: time.Now(), Spec: train.Spec{Name: "later"}})
	s.shows("Nobody is logged in here")
}

// runs puts a running job and its attempt on a node.
func (a *alone) runs(id train.JobID) {
	a.t.Helper()
	now := time.Now()
	put(a.t, a.bus, contract.Jobs, string(id), train.Job{ID: id, State: train.StateRunning, Attempt: 1, SubmittedAt: now, StartedAt: now, Since: now, Spec: train.Spec{Name: string(id)}})
	put(a.t, a.bus, contract.Attempts, string(id), train.Attempt{Job: id, Number: 1, Node: "n1", Phase: train.PhaseRunning})
}

// What a person may not see is asked for once: each refusal is written into the audit.
func TestARefusedOutputIsAskedForOnce(t *testing.T) {
	a, s := openAlone(t)
	a.runs("a")
	a.start()
	s.before(`const ask = window.fetch; window.asked = {};
		window.fetch = (...q) => {
			const what = /(log|standing)\b/.exec(String(q[0]))?.[0] ?? "";
			window.asked[what] = (window.asked[what] ?? 0) + 1;
			return what === "log" ? Promise.resolve(Response.json({ detail: "you may not read it" }, { status: 403 })) : ask(...q);
		};`)
	s.open(a.link())
	s.at("#/jobs/a")
	s.shows("you may not read it")
	s.true("window.asked.standing >= 3") // every three seconds
	s.true("window.asked.log === 1")
}

// A job whose energy nobody books has its loss and its metrics at the page all the same.
func TestTheJobPageDrawsWhatWasReported(t *testing.T) {
	a, s := openAlone(t)
	a.runs("a")
	for epoch := 1; epoch <= 3; epoch++ {
		body := event.EpochEnded{Attempt: 1, EpochsDone: epoch, Loss: new(1 / float64(epoch)), Metrics: map[string]float64{"accuracy": 0.3 * float64(epoch)}, Devices: 1}
		if err := a.bus.Publish(a.ctx, event.Fact{Subject: event.JobSubject("a", event.FactEpochEnded), Key: fmt.Sprintf("job/a/epoch/%d", epoch), Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	a.start()
	s.open(a.link())
	s.at("#/jobs/a")
	s.true(`document.querySelector('svg[aria-label^="loss by epoch"]') !== null`)
	s.do(chromedp.SetValue(`select[aria-label="Metric"]`, "accuracy"))
	s.true(`(() => { const e = document.querySelector('select[aria-label="Metric"]'); e.dispatchEvent(new Event("change", { bubbles: true })); return true; })()`)
	s.true(`document.querySelector('svg[aria-label^="accuracy by epoch"]') !== null`)
}

// A link that is followed in a tab which shows the page already logs in there, and its token leaves the address.
func TestALinkLogsInWhereThePageIsOpen(t *testing.T) {
	a, s := openAlone(t)
	a.start()
	s.open(a.link())
	s.shows("live")
	s.press("log out")
	s.shows("Nobody is logged in here")
	_, hash, _ := strings.Cut(a.link(), "#")
	s.at("#" + hash)
	s.shows("live", "owner")
	s.true(`location.hash === "#/"`)
}

// No name of a job is a formula in a spreadsheet, whatever else it has.
func TestNoNameIsAFormulaInTheEnergySheet(t *testing.T) {
	a, s := openAlone(t)
	put(t, a.bus, contract.Hours, contract.HourKey("n1", time.Now()), contract.Book{
		Node: "n1", Owners: map[train.JobID]contract.Owner{"j": {Name: `=HYPERLINK("http://evil","x")`, User: "ann"}, "k": {Name: "|cmd", User: "ann"}},
		Running: map[train.JobID]train.Account{"j": {Job: "j", Energy: unit.KilowattHour}, "k": {Job: "k", Energy: unit.KilowattHour}},
	})
	a.start()
	s.before(`const make = URL.createObjectURL; URL.createObjectURL = (b) => { void b.text().then((t) => { window.sheet = t; }); return make.call(URL, b); };`)
	s.open(a.link())
	s.at("#/energy")
	s.shows("HYPERLINK")
	s.press("CSV")
	s.true(`window.sheet.includes(',"\'=HYPERLINK(""http://evil"",""x"")",') && window.sheet.includes(",'|cmd,")`)
}

// A job whose name begins with no letter of ASCII runs again under an id that is one.
func TestAJobOfAnyNameRunsAgain(t *testing.T) {
	a, s := openAlone(t)
	put(t, a.bus, contract.Jobs, "a", train.Job{ID: "a", State: train.StateFailed, SubmittedAt: time.Now(), Spec: train.Spec{Name: "-üben", Command: []string{"true"}}})
	a.start()
	s.open(a.link())
	s.at("#/jobs/a")
	s.press("Run again")
	s.shows("submitted again as ben-")
}

// The page of an array is of its jobs, as the list is: which states they are in, and how long they ran.
func TestThePageOfAnArrayIsOfItsJobs(t *testing.T) {
	a, s := openAlone(t)
	now := time.Now()
	put(t, a.bus, contract.Jobs, "sweep", train.Job{ID: "sweep", State: train.StateQueued, SubmittedAt: now, Spec: train.Spec{Name: "sweep", Array: "0-1"}})
	put(t, a.bus, contract.Jobs, "other", train.Job{ID: "other", State: train.StateQueued, SubmittedAt: now, Spec: train.Spec{Name: "other"}})
	for i, state := range []train.State{train.StateRunning, train.StateSucceeded} {
		id := train.MemberID("sweep", i)
		put(t, a.bus, contract.Jobs, string(id), train.Job{ID: id, State: state, SubmittedAt: now, Spec: train.Spec{Name: "sweep", ArrayMember: &train.ArrayMember{Array: "sweep", Index: i, Count: 2}}})
		put(t, a.bus, contract.Accounts, contract.AccountKey(id), train.Account{Job: id, Energy: 750_000})
	}
	a.start()
	s.open(a.link())
	s.at("#/jobs/sweep")
	s.shows("1 running, 1 succeeded", "Timeline", "1.50 J")
	if text := s.text(); strings.Contains(text, "has written nothing") || strings.Contains(text, "queued") && !strings.Contains(text, "running") {
		t.Errorf("the page of an array is that of its own record:\n%s", text)
	}
	s.true(`(() => { const a = [...document.querySelectorAll("main a")].find((a) => a.innerText.startsWith("1 running")); a?.click(); return !!a; })()`)
	s.shows("jobs of the array", "sweep[0]", "sweep[1]")
	s.true(`!document.querySelector("tbody").innerText.includes("other")`)
	s.true(`["choose sweep[0]", "choose sweep[1]"].every((label) => document.querySelector("[aria-label='" + label + "']"))`)
}

// The page asks those of the chosen jobs that can follow, and says once how many it asked and whom it left out.
func TestManyJobsAreAskedAtOnce(t *testing.T) {
	a, s := openAlone(t)
	trial := contract.TrialJob("search", 0)
	put(t, a.bus, contract.Experiments, "search", contract.ExperimentRecord{ID: "search", State: contract.ExperimentRunning, Trials: []contract.Trial{{Job: trial}}})
	for id, state := range map[train.JobID]train.State{trial: train.StateRunning, "waits": train.StateQueued, "also": train.StateQueued, "done": train.StateSucceeded} {
		put(t, a.bus, contract.Jobs, string(id), train.Job{ID: id, State: state, SubmittedAt: time.Now(), Spec: train.Spec{Name: string(id)}})
	}
	a.start()
	s.open(a.link())
	s.shows("live")
	s.at("#/jobs")
	s.do(chromedp.Click(`input[aria-label="choose all"]`))
	s.shows("4 jobs chosen")
	s.press("Pause")
	s.shows("2 jobs asked to pause; 2 left out", "trials")
	s.true(`document.querySelectorAll(".notices > div").length === 1`)
	if a.asked(trial, event.FactWanted) || a.asked("done", event.FactWanted) || !a.asked("waits", event.FactWanted) || !a.asked("also", event.FactWanted) {
		t.Error("other jobs are asked than those that can pause")
	}
}

// Who clicks twice wants one more job.
func TestADoubleClickRunsOneJobAgain(t *testing.T) {
	a, s := openAlone(t)
	put(t, a.bus, contract.Jobs, "a", train.Job{ID: "a", State: train.StateFailed, SubmittedAt: time.Now(), Spec: train.Spec{Name: "a", Command: []string{"true"}}})
	a.start()
	s.open(a.link())
	s.shows("live")
	s.at("#/jobs/a")
	s.shows("Run again")
	s.clickTwice("Run again", "submitted again as a-")
	s.true(`document.querySelectorAll(".notices > div").length === 1`)
}

// A job that hears nothing is not asked to pause: the page says so, and what to do.
func TestThePagePausesWhatHearsIt(t *testing.T) {
	a, s := openAlone(t)
	a.runs("a")
	put(t, a.bus, contract.Jobs, "waits", train.Job{ID: "waits", State: train.StateQueued, SubmittedAt: time.Now(), Spec: train.Spec{Name: "waits"}})
	a.start()
	s.open(a.link())
	s.at("#/jobs/a")
	s.press("Pause")
	s.shows("it cannot be asked to leave", "switchyard pause a --force")
	if a.asked("a", event.FactWanted) {
		t.Error("a job that hears nothing is asked to pause")
	}
	put(t, a.bus, contract.Reports, "a.1", train.AttemptReport{Job: "a", Attempt: 1, Spoke: true})
	s.until("it is asked once it hears", func() bool {
		s.press("Pause")
		return a.asked("a", event.FactWanted)
	})
	s.shows("it leaves at its next save")
	s.at("#/jobs/waits")
	s.press("Pause")
	s.shows("it starts when it is resumed")
}
