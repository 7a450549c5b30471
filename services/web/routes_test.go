package web

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

// seenByAll are the routes that answer everybody, if without what is others': the name of each, and what follows its
// path. All others refuse who only watches.
func seenByAll() map[string]string {
	return map[string]string{
		api.RouteAbout: "", api.RouteJobs: "", api.RouteJob: "", api.RouteExplain: "", api.RouteStands: "", api.RouteWhatIf: "?devices=1", api.RouteEpochs: "", api.RouteForecast: "",
		api.RouteRecords: "?id=of-ann", api.RouteNodes: "", api.RoutePlan: "", api.RouteOutlook: "?policies=fifo", api.RouteMinutes: "", api.RouteModels: "", api.RouteUsers: "",
		api.RouteTenants: "", api.RouteEnergy: "", api.RouteLedger: "?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z", api.RouteNetwork: "", api.RoutePaths: "", api.RouteGroups: "",
		api.RouteTruth: "", api.RouteSearches: "", api.RouteChanges: "", api.RouteLink: "", api.RouteLogin: "", api.RouteLogout: "",
	}
}

// refusals are the other routes that publish no fact, and what follows the path of each.
func refusals() map[string]string {
	return map[string]string{
		api.RouteRehearse: "", api.RouteSuggest: "", api.RouteLog: "?job=of-ann", api.RouteFiles: "?job=of-ann", api.RouteAudit: "", api.RouteSearch: "", api.RouteTrials: "", api.RouteUpload: "", api.RouteTerminal: "",
	}
}

// attacked returns the path of a route about what is Ann's. known is false for a route that nobody has thought of.
func attacked(r api.Route) (path string, open, known bool) {
	id := "of-ann"
	switch {
	case strings.HasPrefix(r.Path, api.Prefix+"/nodes"):
		id = "n"
	case r.Name == api.RouteUpload:
		id = strings.Repeat("a", 64)
	}
	path = strings.ReplaceAll(r.Path, "{id}", id)
	if rest, is := seenByAll()[r.Name]; is {
		return path + rest, true, true
	}
	rest, is := refusals()[r.Name]
	return path + rest, false, is || r.Fact.Fact != ""
}

// Every route of the table is asked by a stranger over TCP, by the page of another site, under the name of another
// host, and by a user of the machine who may only watch. A new route fails here until its author says who may
// ask it.
func TestEveryRouteIsAttacked(t *testing.T) {
	b := sharedBench(t)
	b.hush()
	b.serve()
	socket := connectedAs(t, alienUID, b.config.SharedSocket)
	b.client = socket
	b.until("the person is known", func() bool {
		_, about := ask[api.About](b, "GET", api.Prefix)
		return about.Person.Role == access.Viewer && b.state("of-ann") == train.StateRunning
	})
	at := b.link()
	for _, r := range api.Routes() {
		path, open, known := attacked(r)
		if !known {
			t.Errorf("%s %s: no attack; say in seenByAll or refusals what a person gets who may only watch", r.Method, r.Path)
			continue
		}
		get := func(headers ...string) (status int, text string) {
			response := b.send(r.Method, path, `{"token": "guessed"}`, headers...)
			defer response.Body.Close()
			if r.Streams && response.StatusCode == http.StatusOK {
				return response.StatusCode, b.firstChange(response.Body)
			}
			data, err := io.ReadAll(response.Body)
			if err != nil {
				t.Errorf("%s %s: %v", r.Method, path, err)
			}
			return response.StatusCode, string(data)
		}
		b.client = overTCP(t, at)
		if status, text := get(); status != http.StatusUnauthorized || strings.Contains(text, hushed) {
			t.Errorf("%s %s without a session: %d %s", r.Method, path, status, text)
		}
		b.client = socket
		if status, text := get("Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"); status != http.StatusForbidden || strings.Contains(text, hushed) {
			t.Errorf("%s %s from the page of another site: %d %s", r.Method, path, status, text)
		}
		status, text := get()
		if strings.Contains(text, hushed) {
			t.Errorf("%s %s shows what is Ann's: %s", r.Method, path, text)
		}
		if refused := status == http.StatusForbidden; refused == open && r.Name != api.RouteLogin {
			t.Errorf("%s %s as one who may only watch: %d %s", r.Method, path, status, text)
		}
	}
}

// hushed is in all that only Ann may see.
const hushed = "hush"

// hush puts a job and an experiment of Ann's on the bus, and a person who may only watch.
func (b *bench) hush() {
	b.t.Helper()
	secret := train.Spec{
		Name: "x", User: "ann", Tenant: "vision", Command: []string{"train", "--token=" + hushed}, Env: map[string]string{"KEY": hushed}, CustomDir: "/home/ann/" + hushed,
		SecretEnv: map[string]string{"TOKEN": "file:/home/ann/" + hushed},
	}
	b.put(train.Job{ID: "of-ann", State: train.StateRunning, Spec: secret, LogTail: hushed, Checkpoint: "/snapshots/" + hushed, SubmittedAt: time.Now()})
	fail := func(err error) {
		if err != nil {
			b.t.Fatal(err)
		}
	}
	records, err := bus.OpenKV(b.ctx, b.bus, contract.Experiments)
	fail(err)
	fail(records.Put(b.ctx, "of-ann", contract.ExperimentRecord{ID: "of-ann", Experiment: contract.Experiment{Name: "x", Job: secret}, State: contract.ExperimentRunning}))
	truths, err := bus.OpenKV(b.ctx, b.bus, contract.Profiles)
	fail(err)
	workload := contract.WorkloadCosts{Workload: "train --token=" + hushed, Name: hushed}
	fail(truths.Put(b.ctx, contract.ProfilesKey, contract.GroundTruth{Entries: []contract.Workload{{WorkloadCosts: workload}}, Heard: []contract.LearntUpTo{{Training: hushed}}}))
	hours, err := bus.OpenKV(b.ctx, b.bus, contract.Hours)
	fail(err)
	fail(hours.Put(b.ctx, "n.2026-01.01.05", contract.Book{Node: "n", Running: map[train.JobID]train.Account{"of-ann": {Job: "of-ann", Seconds: 1}}}))
	users, err := bus.OpenKV(b.ctx, b.bus, contract.Users)
	fail(err)
	fail(users.Put(b.ctx, userOf(alienUID), access.Person{Name: userOf(alienUID), Role: access.Viewer, Tenant: "speech"}))
}

// firstChange changes Ann's job, and returns what a stream says of it.
func (b *bench) firstChange(stream io.Reader) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	jobs, err := bus.OpenKV(ctx, b.bus, contract.Jobs)
	if err == nil {
		_, err = jobs.Modify(ctx, "of-ann", func(j *train.Job) (bool, error) { j.EpochsDone++; return true, nil })
	}
	if err != nil {
		b.t.Fatal(err)
	}
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		if strings.Contains(lines.Text(), "of-ann") {
			return lines.Text()
		}
	}
	b.t.Error("the stream says nothing")
	return ""
}
