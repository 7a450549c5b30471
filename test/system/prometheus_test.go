package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// scraped is a system with a tariff, two simulated GPUs and its /metrics at a known port.
func scraped(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	site, err := filepath.Abs("../../deploy/grafana/site.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c.http = map[string]int{"up": bustest.FreePort(t)}
	c.flags = []string{"--device-kind", "gpu", "--sim-gpus", "2", "--sim-gpu-watts", "300", "--meter-interval", "200ms", "--tariff", site}
	c.start("up")
	c.connect()
	return c
}

// train submits a job that reports losses and steps.
func (c *cluster) train(id train.JobID, spec train.Spec) {
	c.t.Helper()
	spec.Command, spec.Project = []string{filepath.Join(binaries, "gotrainer"), "-hidden", "8", "-slow-by", "5ms"}, "thesis"
	spec.BatchSize, spec.TrainingSetSize = 32, 6000
	c.submitSpec(id, spec)
}

// metrics returns what a scrape says.
func (c *cluster) metrics() (text string) {
	c.t.Helper()
	c.eventually("scrape", func() error {
		body, err := c.fetch(fmt.Sprintf("http://127.0.0.1:%d/metrics", c.http["up"]))
		text = body
		return err
	})
	return text
}

// fetch returns the body of an answer with the status 200.
func (c *cluster) fetch(address string) (string, error) {
	request, err := http.NewRequestWithContext(c.ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", address, answer.Status, body)
	}
	return string(body), err
}

// sum adds up the samples whose line begins with a name and has all of the labels.
func sum(t *testing.T, metrics, name string, labels ...string) (total float64) {
	t.Helper()
	for line := range strings.Lines(metrics) {
		fits := strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ")
		for _, l := range labels {
			fits = fits && strings.Contains(line, l)
		}
		if !fits {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]), 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		total += value
	}
	return total
}

// TestPrometheusSeesWhatTheLedgerHas runs two jobs, and compares the joules of /metrics with those of the ledger.
func TestPrometheusSeesWhatTheLedgerHas(t *testing.T) {
	t.Parallel()
	c := scraped(t)
	jobs := []train.JobID{"first", "second"}
	for _, id := range jobs {
		c.train(id, train.Spec{MaxEpochs: 3})
	}
	accounts := map[train.JobID]train.Account{}
	c.await("both have ended and are accounted for", func(map[train.JobID]train.Job) bool {
		for key, data := range c.bucket("ledger") {
			id, is := strings.CutPrefix(key, "job.")
			var a train.Account
			if is && json.Unmarshal(data, &a) == nil && a.Final {
				accounts[train.JobID(id)] = a
			}
		}
		return len(accounts) == len(jobs)
	})
	var metrics string
	c.eventually("the ends are shown", func() error {
		if metrics = c.metrics(); strings.Count(metrics, "switchyard_job_cost{") != len(jobs) {
			return fmt.Errorf("not both have a cost in\n%s", metrics)
		}
		return nil
	})
	all := unit.Energy(0)
	for id, a := range accounts {
		all += a.Energy
		if got := sum(t, metrics, "switchyard_job_energy_joules_total", `job_id="`+string(id)+`"`); !near(got, a.Energy.Joules()) || got == 0 {
			t.Errorf("%s: %g J, the ledger has %g J", id, got, a.Energy.Joules())
		}
		if got := sum(t, metrics, "switchyard_job_cost", `job_id="`+string(id)+`"`); a.Cost == nil || !near(got, *a.Cost) {
			t.Errorf("%s: cost %g, the ledger has %+v", id, got, a.Cost)
		}
	}
	if got := sum(t, metrics, "switchyard_owner_energy_joules_total", `project="thesis"`); !near(got, all.Joules()) {
		t.Errorf("the owner's %g J, the ledger has %g J", got, all.Joules())
	}
	c.documented(metrics)
}

func near(x, y float64) bool { return math.Abs(x-y) <= 1e-9*math.Max(math.Abs(x), 1) }

// documented checks that docs/metrics.md lists each metric about jobs, owners, nodes and devices.
func (c *cluster) documented(metrics string) {
	c.t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		c.t.Fatal(err)
	}
	found := regexp.MustCompile(`# HELP (switchyard_(?:job|jobs|queue|owner|node|device|build|metrics)(?:_[a-z0-9_]+)?) `).FindAllStringSubmatch(metrics, -1)
	for _, m := range found {
		if !strings.Contains(string(page), "`"+m[1]) {
			c.t.Errorf("docs/metrics.md does not mention %s", m[1])
		}
	}
	if len(found) < 15 {
		c.t.Errorf("only %d metrics in\n%s", len(found), metrics)
	}
}

// TestPromtoolAcceptsTheMetrics of a system in which a job runs, one waits and one has failed.
func TestPromtoolAcceptsTheMetrics(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool (Debian: apt-get install prometheus)")
	}
	t.Parallel()
	c := scraped(t)
	c.busy()
	check := exec.CommandContext(c.ctx, promtool, "check", "metrics")
	metrics := c.metrics()
	check.Stdin = strings.NewReader(metrics)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	c.documented(metrics)
}

// busy lets a job end and one fail, and then makes one run that has reported a loss, and one wait.
func (c *cluster) busy() {
	c.t.Helper()
	c.train("ends", train.Spec{MaxEpochs: 1})
	c.submitSpec("fails", train.Spec{Command: []string{"false"}, Project: "thesis"})
	c.await("one ends, one fails", func(jobs map[train.JobID]train.Job) bool {
		return jobs["ends"].State == train.StateSucceeded && jobs["fails"].State == train.StateFailed
	})
	const forever = 100_000 // epochs: the test ends first
	c.train("runs", train.Spec{MaxEpochs: forever, Devices: 2, Priority: new(100)})
	c.eventually("its loss is shown", func() error {
		if !strings.Contains(c.metrics(), `switchyard_job_loss{job_id="runs"`) {
			return errors.New("no loss")
		}
		return nil
	})
	c.train("waits", train.Spec{MaxEpochs: forever, Devices: 2, Priority: new(0)})
}
