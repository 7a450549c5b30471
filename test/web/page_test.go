// Package web looks at the page of a real Switchyard with a real browser.
package web

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// What a person sees is there, and what he presses happens.
func TestThePageShowsAndActs(t *testing.T) {
	y := newYard(t)
	link := y.command("open")
	y.open(link)
	y.shows("Yard", "gpu:0", "gpu:1", "free", "Nothing waits.", "live", "owner")
	y.submit("first", "--name", "alpha", "--", "sh", "-c", "echo said by alpha; sleep 600")
	y.submit("second", "--name", "beta", "--", "sleep", "600")
	y.submit("third", "--name", "gamma", "--", "true")
	y.submit("broken", "--name", "delta", "--", "sh", "-c", "exit 3")
	y.shows("2 of 2 devices busy", "alpha", "beta", "gamma")
	y.at("#/jobs")
	y.shows("alpha", "beta", "gamma", "delta", "running", "queued")

	y.at("#/jobs/first")
	y.shows("said by alpha", "asked for", "Timeline")
	y.press("Priority 50")
	y.do(chromedp.SetValue(`input[aria-label="Priority"]`, ""), chromedp.SendKeys(`input[aria-label="Priority"]`, "70"))
	y.press("Set")
	y.until("the priority is 70", func() bool { return *y.job("first").Spec.Priority == 70 })
	y.press("Cancel…")
	y.press("Yes, cancel it")
	y.until("it is cancelled", func() bool { return y.job("first").State == train.StateCancelled })
	y.shows("cancelled")
	y.press("Run again")
	y.shows("submitted again as alpha-")

	y.at("#/jobs/third")
	y.until("the third has ended", func() bool { return y.job("third").State == train.StateSucceeded })
	y.shows("succeeded")
	y.at("#/jobs/second")
	y.press("Pause")
	y.shows("cannot be asked to leave", "--force")
	y.at("#/yard")
	y.shows("delta failed: the program ended with status 3")

	y.do(chromedp.Navigate("about:blank"), chromedp.Navigate(link))
	y.shows("Yard") // by the session
	y.press("log out")
	y.shows("Nobody is logged in here", "switchyard open")
	y.do(chromedp.Navigate("about:blank"), chromedp.Navigate(link))
	y.shows("the link was used before, or is too old")
}

// Names, output and reasons are text, whatever they are made to look like.
func TestWhatJobsSayIsText(t *testing.T) {
	y := newYard(t)
	name, evil := `<img src=x onerror=window.hacked=1>`, `<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>`
	y.submit("evil", "--name", name, "--project", "p", "--label", "a=b", "--", "sh", "-c", "printf '%s\\n' '"+evil+"'; printf '\\033[31mred\\033[0m\\n'; sleep 600")
	y.submit("fails", "--name", "javascript:window.hacked=3", "--", "sh", "-c", "echo '"+evil+"' >&2; exit 3")
	y.open(y.command("open"))
	for _, place := range []string{"#/jobs", "#/plan", "#/yard"} {
		y.at(place)
		y.shows(name)
	}
	y.at("#/jobs/evil")
	y.shows("<script>window.hacked=2</script>", "red")
	y.at("#/jobs/fails")
	y.shows("<script>window.hacked=2</script>")
	y.at("#/jobs/" + "%3Cimg%20src%3Dx%20onerror%3Dwindow.hacked%3D4%3E")
	y.shows("no job")
	found, err := chromedp.Run(y.browser, chromedp.Evaluate[string](`JSON.stringify([window.hacked ?? 0, document.querySelectorAll("main img, main script").length])`))
	if err != nil || found != "[0,0]" {
		t.Errorf("code of a job ran or stands in the page: %s, %v", found, err)
	}
}

func TestThePageOutlivesItsService(t *testing.T) {
	y := newYard(t)
	y.submit("before", "--name", "before", "--", "sleep", "600")
	y.open(y.command("open"))
	y.shows("before", "live")
	y.kill()
	y.shows("no connection", "Switchyard does not answer")
	y.start()
	y.submit("after", "--name", "after", "--", "sleep", "600")
	y.until("the page is right again", func() bool {
		text := y.text()
		return strings.Contains(text, "after") && strings.Contains(text, "before") && strings.Contains(text, "live") && !strings.Contains(text, "does not answer")
	})
}

// Who goes to a job by the keyboard reads on at its heading, also if there is no such job.
func TestTheHeadingOfAJobHasTheFocus(t *testing.T) {
	a, s := openAlone(t)
	put(t, a.bus, contract.Jobs, "a", train.Job{ID: "a", State: train.StateQueued, SubmittedAt: time.Now(), Spec: train.Spec{Name: "first"}})
	a.start()
	s.open(a.link())
	s.shows("live")
	for place, heading := range map[string]string{"a": "first", "b": "b"} {
		s.at("#/jobs/" + place)
		s.until("the page of "+place+" is loaded", func() bool {
			return strings.Contains(s.text(), map[string]string{"a": "Timeline", "b": `no job "b"`}[place])
		})
		s.true(fmt.Sprintf(`document.activeElement.tagName === "H1" && document.activeElement.innerText === %q`, heading))
	}
}

// A user of the machine has a link of his own, and is himself at the page: he does not read what another's job writes.
func TestAnothersOutputIsNotShown(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root, who alone can ask as other users")
	}
	y := newYard(t)
	y.submit("secret", "--name", "secret", "--", "sh", "-c", "echo hush; sleep 600")
	y.until("it runs", func() bool { return y.job("secret").State == train.StateRunning })
	program := filepath.Join(y.dir, "switchyard")
	text, err := os.ReadFile(filepath.Join(binaries, "switchyard"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, text, 0o755); err != nil {
		t.Fatal(err)
	}
	const uid = 64005
	ask := exec.CommandContext(y.ctx, program, "open")
	ask.Env, ask.Dir = []string{"SWITCHYARD_SOCKET=" + y.shared, "HOME=/nonexistent"}, "/"
	ask.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	link, err := ask.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, link)
	}
	y.open(strings.TrimSpace(string(link)))
	y.shows(fmt.Sprintf("uid%d", uid), "secret", "running")
	y.at("#/jobs/secret")
	y.shows("may not read it")
	y.true(`["Pause", "Priority", "Run again", "Cancel…"].every((what) => ![...document.querySelectorAll("main button")].some((b) => b.innerText.startsWith(what)))`)
	y.at("#/jobs")
	y.shows("all states", "secret")
	y.true(`document.querySelector("main input[type=checkbox]") === null`)
	if text := y.text(); strings.Contains(text, "hush") {
		t.Errorf("shows the output of another's job:\n%s", text)
	}
	if state := y.job("secret").State; state != train.StateRunning {
		t.Errorf("the job is %s", state)
	}
}

// The accessibility checks of axe-core, an npm package of the page's sources, find nothing serious on any page, in
// light and in dark.
func TestThePageIsAccessible(t *testing.T) {
	axe, err := os.ReadFile("../../services/web/page/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Skip("no axe-core here: `make page` fetches it")
	}
	y := newYard(t)
	y.submit("one", "--name", "one", "--", "sh", "-c", "echo hello; sleep 600")
	y.submit("bad", "--name", "bad", "--", "sh", "-c", "exit 3")
	b := y.bus()
	put(t, b, contract.Nodes, "full", train.Node{ID: "full", SeenAt: time.Now().Add(-time.Hour), DiskTrouble: "nothing is left"})
	put(t, b, contract.Tenants, "vision", access.Tenant{Name: "vision", Bounds: access.Bounds{EnergyKWh: new(10.0)}})
	put(t, b, contract.Hours, contract.HourKey("full", time.Now()), contract.Book{Node: "full", CO2eGramsPerKWh: new(100.0), Totals: map[string]contract.Totals{"gpu": {Idle: unit.KilowattHour}}})
	y.open(y.command("open"))
	y.shows("one", "bad failed", "The disk of node full is full")
	y.search("searched")
	for place, shown := range map[string]string{
		"#/experiments": "least loss", "#/experiments/searched": "<b>adam</b>", "#/yard": "gpu:0", "#/jobs": "Submitted", "#/jobs/one": "hello", "#/jobs/bad": "Timeline",
		"#/plan": "Who waits", "#/energy": "by user", "#/network": "loses packets",
	} {
		y.at(place)
		if place == "#/network" {
			y.probes(b)
		}
		y.shows(shown)
		for _, scheme := range []string{"light", "dark"} {
			y.colours(scheme)
			found, err := chromedp.Run(y.browser, chromedp.Evaluate[string](string(axe)+`;
				axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => v.id + ": " + v.nodes.map((n) => n.html).join(" ")).join("\n"))`,
				chromedp.EvalAwaitPromise))
			if err != nil || found != "" {
				t.Errorf("%s, %s: %s %v", place, scheme, found, err)
			}
		}
	}
}
