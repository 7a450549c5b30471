package web

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/web/chromium"
)

// The cluster that the page shows has benchJobs jobs: benchRunning run on the devices of benchNodes nodes, benchWaiting
// wait, and the others have ended.
const (
	benchJobs    = 10_000
	benchWaiting = 400
	benchNodes   = 25
	benchDevices = 4
	benchRunning = benchNodes * benchDevices
	benchPages   = 20
	// paintLoads is how often the list of jobs is loaded.
	paintLoads = 50
)

// BenchmarkThePage is what the page costs with 10,000 jobs, the service web as a process of its own: the time to the
// first paint and to all jobs, from an event on the bus to the screen, the memory and processor time of the service
// with 20 open pages, and how long a page that was cut off for a minute takes to be right again.
func BenchmarkThePage(b *testing.B) {
	if _, err := chromium.Find(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s := newStage(b)
		b.ReportMetric(s.memoryMiB("VmRSS"), "web-start-MiB")
		s.paints()
		s.delays()
		s.cutOff()
		s.manyPages()
		b.ReportMetric(0, "ns/op")
	}
}

// stage is the service with many jobs, a browser, and a proxy between them.
type stage struct {
	*alone
	b     *testing.B
	jobs  *bus.KV[train.Job]
	nodes *bus.KV[train.Node]
	page  string
	cable *cable
	tab   context.Context //nolint:containedctx // that of the browser's tab
	plan  uint64
}

func newStage(b *testing.B) *stage {
	s := &stage{alone: newAlone(b), b: b}
	if err := bus.Open(s.ctx, s.bus, contract.Jobs, &s.jobs); err != nil {
		b.Fatal(err)
	}
	if err := bus.Open(s.ctx, s.bus, contract.Nodes, &s.nodes); err != nil {
		b.Fatal(err)
	}
	s.fill()
	s.start()
	s.logIn()
	return s
}

// benchJob is one job of the cluster.
func benchJob(i int, now time.Time) train.Job {
	j := train.Job{
		ID: train.JobID(fmt.Sprintf("job-%05d", i)), State: train.StateSucceeded, SubmittedAt: now.Add(time.Duration(i-benchJobs) * time.Second),
		Spec: train.Spec{Name: fmt.Sprintf("name-%05d", i), User: fmt.Sprintf("user%d", i%12), MaxEpochs: 30, Labels: map[string]string{"phase": "warmup"}}, EpochsDone: 30,
	}
	switch from := benchJobs - i; {
	case from <= benchWaiting:
		j.State, j.Reason, j.Message, j.EpochsDone = train.StateQueued, "WaitingForDevices", "needs 1 GPU, 0 free", 0
	case from <= benchWaiting+benchRunning:
		j.State, j.Reason, j.Message, j.EpochsDone = train.StateRunning, "Started", "it runs", 7
		j.StartedAt, j.Devices = now.Add(-time.Hour), []train.DeviceID{train.DeviceID(fmt.Sprintf("gpu:%d", i%benchDevices))}
	default:
		j.FinishedAt = now.Add(-time.Hour)
	}
	return j
}

// fill stores the jobs, the nodes and a plan.
func (s *stage) fill() {
	now := time.Now()
	side := pool.New().WithMaxGoroutines(64).WithErrors()
	for i := range benchJobs {
		side.Go(func() error {
			j := benchJob(i, now)
			return s.jobs.Put(s.ctx, string(j.ID), j)
		})
	}
	if err := side.Wait(); err != nil {
		s.b.Fatal(err)
	}
	s.seen()
	s.decide()
}

// seen writes the nodes, as their agents do every few seconds.
func (s *stage) seen() {
	for i := range benchNodes {
		n := train.Node{ID: train.NodeID(fmt.Sprintf("n%02d", i)), Cores: 32, Memory: 256 << 30, SeenAt: time.Now()}
		for d := range benchDevices {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", d)), Kind: train.KindGPU, Model: "H100", Memory: 80 << 30, BusyWatts: 700})
		}
		if err := s.nodes.Put(s.ctx, string(n.ID), n); err != nil && s.ctx.Err() == nil {
			s.b.Error(err)
		}
	}
}

// decide publishes a new plan.
func (s *stage) decide() {
	s.plan++
	p := train.Plan{Generation: s.plan, Policy: "switchyard", DecidedAt: time.Now().UTC()}
	span := func(seconds float64) *train.Span {
		return &train.Span{Expected: seconds, Low: seconds / 2, High: 2 * seconds}
	}
	for i := range benchRunning {
		p.Allocations = append(p.Allocations, train.Allocation{
			Job: train.JobID(fmt.Sprintf("job-%05d", benchJobs-benchWaiting-benchRunning+i)), Node: train.NodeID(fmt.Sprintf("n%02d", i/benchDevices)),
			Devices: []train.DeviceID{train.DeviceID(fmt.Sprintf("gpu:%d", i%benchDevices))}, Forecast: train.Forecast{Finish: span(float64(600 + i))}, Reason: train.Reason{Code: "Kept", Message: "keeps 1 device"},
		})
	}
	for i := range benchWaiting {
		p.Waiting = append(p.Waiting, train.Waiting{
			Job: train.JobID(fmt.Sprintf("job-%05d", benchJobs-benchWaiting+i)), Forecast: train.Forecast{Start: span(float64(600 + 10*i)), Finish: span(float64(4000 + 10*i))},
			Blockers: []train.Reason{{Code: "WaitingForDevices", Message: "needs 1 GPU, 0 free"}},
		})
	}
	if err := s.bus.Publish(s.ctx, event.Fact{Subject: event.PlanSubject(), Key: fmt.Sprintf("plan/%d", s.plan), Body: event.PlanDecided{Plan: p}}); err != nil && s.ctx.Err() == nil {
		s.b.Error(err)
	}
}

// logIn starts the browser and logs in over the proxy.
func (s *stage) logIn() {
	address, token, _ := strings.Cut(strings.TrimPrefix(s.link(), "http://"), "/")
	s.cable = newCable(s.b, address)
	tab, stop, err := chromium.Start(s.ctx)
	if err != nil {
		s.b.Fatal(err)
	}
	s.b.Cleanup(stop)
	s.tab, s.page = tab, "http://"+s.cable.address+"/"
	s.visit(tab, s.page+token, "main .yard")
}

// visit loads a page again. A browser gives a load up when the machine gets another address, as tests of networks and
// containers beside this one do: then it tries again.
func (s *stage) visit(tab context.Context, page, shows string) {
	s.b.Helper()
	for {
		err := chromedp.Do(tab, chromedp.Navigate("about:blank"), chromedp.Navigate(page), chromedp.WaitVisible(shows))
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "ERR_NETWORK_CHANGED") {
			s.b.Fatal(err)
		}
	}
}

// measure evaluates a script that gives a number.
func (s *stage) measure(script string) float64 {
	s.b.Helper()
	ctx, cancel := context.WithTimeout(s.tab, 2*time.Minute)
	defer cancel()
	x, err := chromedp.Run(ctx, chromedp.Evaluate[float64](script, chromedp.EvalAwaitPromise))
	if err != nil {
		s.b.Fatal(err)
	}
	return x
}

// becomes is a script that waits until an expression is true and gives the time since the page was asked for, in
// milliseconds, after the next frame is drawn.
func becomes(expression string) string {
	return `new Promise((done) => { const look = () => (` + expression + `) ? setTimeout(() => done(performance.now())) : requestAnimationFrame(look); look(); })`
}

// paints loads the list of jobs again and again.
func (s *stage) paints() {
	var first, all []float64
	for range paintLoads {
		s.visit(s.tab, s.page+"#/jobs", "main h1")
		all = append(all, s.measure(becomes(fmt.Sprintf(`document.querySelector(".head [role=status]")?.innerText === "%d"`, benchJobs))))
		first = append(first, s.measure(`performance.getEntriesByName("first-contentful-paint")[0].startTime`))
	}
	s.b.ReportMetric(quantile(first, 0.5), "first-paint-ms")
	s.b.ReportMetric(quantile(first, 1), "first-paint-max-ms")
	s.b.ReportMetric(quantile(all, 0.5), "all-jobs-ms")
	s.b.ReportMetric(s.memoryMiB("VmRSS"), "web-one-page-MiB")
}

// rename changes a job on the bus.
func (s *stage) rename(i int, name string) {
	j := benchJob(i, time.Now())
	j.Spec.Name, j.SubmittedAt = name, time.Now()
	if err := s.jobs.Put(s.ctx, string(j.ID), j); err != nil && s.ctx.Err() == nil {
		s.b.Error(err)
	}
}

// delays measures from before an event is published until the browser has drawn it. Clocks are those of one machine.
func (s *stage) delays() {
	var delays []float64
	for i := range 80 {
		tick.Pause(s.ctx, time.Duration(137*(i%4)+61*(i%7))*time.Millisecond) // at any time between two events of the stream
		name := fmt.Sprintf("seen-%03d", i)
		s.measure(`window.drawn = new Promise((done) => { const look = () => document.querySelector("tbody td.name a")?.innerText === "` + name + `" ? setTimeout(() => done(Date.now())) : requestAnimationFrame(look); look(); }), 0`)
		began := time.Now()
		s.rename(benchJobs-1-i%10, name)
		delays = append(delays, s.measure(`window.drawn`)-float64(began.UnixMicro())/1000)
	}
	s.b.ReportMetric(quantile(delays, 0.5), "event-to-screen-ms")
	s.b.ReportMetric(quantile(delays, 0.95), "event-to-screen-p95-ms")
}

// cutOff changes jobs while the page cannot reach the service.
func (s *stage) cutOff() {
	s.cable.cut()
	for i := range 200 {
		s.rename(benchJobs-1-i, fmt.Sprintf("cut-%03d", i))
		tick.Pause(s.ctx, 300*time.Millisecond)
	}
	s.decide()
	began := time.Now()
	s.cable.mend()
	s.measure(becomes(`document.querySelector("tbody td.name a")?.innerText === "cut-199" && document.querySelector(".live").innerText === "live" && [...document.querySelectorAll("tbody td.name a")].slice(0, 20).every((a, i) => a.innerText === "cut-" + (199 - i))`))
	s.b.ReportMetric(time.Since(began).Seconds(), "right-after-a-minute-away-s")
}

// manyPages opens pages, each in a window with cookies and connections of its own, and watches the service for a minute
// while a cluster works: a job changes each second, the agents write every five seconds, and a plan comes as often.
func (s *stage) manyPages() {
	places := []string{"#/yard", "#/jobs", "#/plan", "#/yard", "#/jobs/job-09600", "#/energy"}
	tabs := []context.Context{s.tab}
	for i := range benchPages - 1 {
		tab, stop := chromedp.NewContext(s.tab, chromedp.WithNewBrowserContext())
		s.b.Cleanup(stop)
		_, token, _ := strings.Cut(strings.TrimPrefix(s.link(), "http://"), "/")
		s.visit(tab, s.page+token, "main .yard")
		s.visit(tab, s.page+places[i%len(places)], "main h1, main .empty")
		tabs = append(tabs, tab)
	}
	tick.Pause(s.ctx, 30*time.Second)
	for i, tab := range tabs {
		follows, err := chromedp.Run(tab, chromedp.Evaluate[bool](`!document.hidden && document.querySelector(".live").innerText === "live"`))
		if err != nil || !follows {
			s.b.Fatalf("page %d does not follow what changes: %v", i, err)
		}
	}
	const watched = 60
	before := s.usedSeconds()
	began := time.Now()
	for i := range watched {
		s.rename(benchJobs-1-i%50, fmt.Sprintf("busy-%03d", i))
		if i%5 == 0 {
			s.seen()
			s.decide()
		}
		tick.Pause(s.ctx, time.Until(began.Add(time.Duration(i+1)*time.Second)))
	}
	s.b.ReportMetric(100*(s.usedSeconds()-before)/time.Since(began).Seconds(), "web-20-pages-cpu-%")
	s.b.ReportMetric(s.memoryMiB("VmRSS"), "web-20-pages-MiB")
	s.b.ReportMetric(s.memoryMiB("RssAnon"), "web-20-pages-anonymous-MiB")
	s.b.ReportMetric(s.memoryMiB("VmHWM"), "web-peak-MiB")
}

func (s *stage) usedSeconds() float64 {
	p, err := proc.Root("/proc").Process(s.process.Process.Pid)
	if err != nil {
		s.b.Fatal(err)
	}
	return p.Own.Seconds()
}

func (s *stage) memoryMiB(name string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.Process.Pid))
	if err != nil {
		s.b.Fatal(err)
	}
	kib := 0.0
	_, value, _ := strings.Cut(string(text), name+":")
	if _, err := fmt.Sscan(value, &kib); err != nil {
		s.b.Fatalf("%s: %v", name, err)
	}
	return kib / 1024
}

func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
