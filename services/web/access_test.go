package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/packets"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// connectedAs returns a client whose connections the kernel takes for those of another user. The thread that connects
// has that user's number for the moment, and ends if it cannot become root again.
func connectedAs(t *testing.T, uid int, socket string) *http.Client {
	t.Helper()
	become := func(uid int) error {
		const same = ^uintptr(0)
		// The call of the kernel, which is about one thread: the one of package syscall is about all.
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
			return errno
		}
		return nil
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		runtime.LockOSThread()
		if err := become(uid); err != nil {
			return nil, err
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if back := become(0); back != nil {
			return nil, back
		}
		runtime.UnlockOSThread()
		return c, err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: time.Minute}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// sharedBench is a service with a socket for all users of the machine, and a job of each of three of them.
func sharedBench(t *testing.T) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root, who alone can ask as other users")
	}
	b := newBench(t)
	open, err := os.MkdirTemp("", "switchyard-door-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(open) })
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	b.config.SharedSocket, b.config.Listen = filepath.Join(open, "web.sock"), "127.0.0.1:0"
	return b
}

// The numbers of users of the machine that have no name there.
const (
	askerUID = 64001
	mateUID  = 64002
	alienUID = 64003
)

func userOf(uid int) string { return fmt.Sprintf("uid%d", uid) }

// request is how a person asks for an operation about a job over HTTP.
type request struct{ method, path, body string }

// requests returns what people can ask of the service. Each job has an experiment of the same name.
func requests(job, fresh string) map[access.Operation]request {
	var terminal strings.Builder
	_ = packets.Write(&terminal, []byte("{}"))
	return map[access.Operation]request{
		access.SeeJobs:        {"GET", "/api/v1/jobs", ""},
		access.SeePlan:        {"GET", "/api/v1/plan", ""},
		access.SeeNodes:       {"GET", "/api/v1/nodes", ""},
		access.SeeModels:      {"GET", "/api/v1/models", ""},
		access.SeeUsers:       {"GET", "/api/v1/users", ""},
		access.SeeAudit:       {"GET", "/api/v1/audit", ""},
		access.AskWhatIf:      {"GET", "/api/v1/plan/whatif", ""},
		access.ReadOutput:     {"GET", "/api/v1/nodes/n/log?job=" + job, ""},
		access.ReadFiles:      {"GET", "/api/v1/nodes/n/files?job=" + job, ""},
		access.Submit:         {"POST", "/api/v1/jobs/" + fresh + "/submitted", `{"name": "x", "command": ["true"]}`},
		access.Cancel:         {"POST", "/api/v1/jobs/" + job + "/cancel_requested", ""},
		access.Hold:           {"POST", "/api/v1/jobs/" + job + "/wanted", `{"state": "held"}`},
		access.Edit:           {"POST", "/api/v1/jobs/" + job + "/edit_requested", `{"set": {"priority": 60}}`},
		access.Attach:         {"POST", "/api/v1/jobs/" + job + "/terminal", terminal.String()},
		access.SeeExperiment:  {"GET", "/api/v1/experiments/" + job, ""},
		access.StopExperiment: {"POST", "/api/v1/experiments/" + job + "/stop_requested", "{}"},
		access.OrderNode:      {"POST", "/api/v1/nodes/n/cordon_requested", ""},
		access.ChangeTenant:   {"POST", "/api/v1/tenants/vision/set_requested", `{"devices": 4}`},
		access.ChangeUser:     {"POST", "/api/v1/users/" + userOf(mateUID) + "/set_requested", `{"role": "admin"}`},
	}
}

func TestThePermissionMatrix(t *testing.T) {
	for door, enter := range map[string]func(*bench){"socket": func(*bench) {}, "page": (*bench).enter} {
		by := map[string]string{"socket": "socket", "page": "TCP"}[door]
		t.Run(door, func(t *testing.T) { matrix(t, enter, by) })
	}
}

// putAttempt stores the newest attempt of a job, with what only those may read who may read the job's spec and output.
func (b *bench) putAttempt(job train.JobID) {
	b.t.Helper()
	attempts, err := bus.OpenKV(b.ctx, b.bus, contract.Attempts)
	if err != nil {
		b.t.Fatal(err)
	}
	reports, err := bus.OpenKV(b.ctx, b.bus, contract.Reports)
	if err != nil {
		b.t.Fatal(err)
	}
	attempt := train.Attempt{
		Job: job, Number: 1, Node: "n", Phase: train.PhaseExited, Staging: &train.Staging{URL: "https://data/hush", Bytes: 1},
		Exit: &train.Exit{Code: 1, LogTail: "hush", Message: "hush", Reason: train.Reason{Code: "NotStarted", Message: "hush", Hint: "hush"}},
	}
	report := train.AttemptReport{Job: job, Attempt: 1, Checkpoint: "/home/hush", CheckpointEpochs: 1}
	if err := errors.Join(attempts.Put(b.ctx, string(job), attempt), reports.Put(b.ctx, contract.ReportKey(job, 1), report)); err != nil {
		b.t.Fatal(err)
	}
}

// What a job has written, and where its data and checkpoints are, is for those who may read its spec. What is left of
// the records says how the job goes.
func TestAnAttemptOfAnotherTenantKeepsItsOutput(t *testing.T) {
	b := sharedBench(t)
	b.put(train.Job{ID: "theirs", State: train.StateRunning, Attempt: 1, Spec: train.Spec{Name: "x", User: userOf(alienUID), Tenant: "speech"}})
	b.putAttempt("theirs")
	b.serve()
	b.client = connectedAs(t, askerUID, b.config.SharedSocket)
	_, d := ask[view.Detail](b, "GET", "/api/v1/jobs/theirs")
	switch {
	case d.Attempt == nil || d.Attempt.Exit == nil || d.Attempt.Staging == nil || d.Report == nil:
		t.Fatalf("records are missing: %+v", d)
	case *d.Attempt.Exit != train.Exit{Code: 1, Reason: train.Reason{Code: "NotStarted"}}:
		t.Errorf("the end of the attempt is %+v", *d.Attempt.Exit)
	case *d.Attempt.Staging != train.Staging{Bytes: 1}:
		t.Errorf("the data is %+v", *d.Attempt.Staging)
	case d.Report.Checkpoint != "" || d.Report.CheckpointEpochs != 1:
		t.Errorf("the report is %+v", *d.Report)
	}
	_, text := ask[json.RawMessage](b, "GET", "/api/v1/jobs/theirs/explanation")
	for _, words := range []string{"1 B fetched from its address", "saved, after epoch 1"} {
		if !strings.Contains(string(text), words) {
			t.Errorf("the explanation does not say %q: %s", words, text)
		}
	}
	if strings.Contains(string(text), "hush") {
		t.Errorf("the explanation shows more: %s", text)
	}
	// The index keeps what others may not see: its owner still reads it.
	b.client = connectedAs(t, alienUID, b.config.SharedSocket)
	if _, own := ask[view.Detail](b, "GET", "/api/v1/jobs/theirs"); own.Attempt == nil || own.Attempt.Exit.LogTail != "hush" || own.Report.Checkpoint == "" {
		t.Errorf("the owner sees %+v", own)
	}
}

// matrix asks for everything as everybody, through a door that enter opens. by is how the requests then come.
func matrix(t *testing.T, enter func(*bench), by string) {
	t.Helper()
	b := sharedBench(t)
	tenants := map[int]string{askerUID: "vision", mateUID: "vision", alienUID: "speech"}
	for uid, tenant := range tenants {
		b.put(train.Job{ID: train.JobID("of-" + userOf(uid)), State: train.StateQueued, Spec: train.Spec{
			Name: "x", User: userOf(uid), Tenant: tenant, Command: []string{"train", "--token=hush"}, Env: map[string]string{"KEY": "hush"},
		}, LogTail: "hush"})
	}
	for uid := range tenants {
		b.putAttempt(train.JobID("of-" + userOf(uid)))
	}
	users, err := bus.OpenKV(b.ctx, b.bus, contract.Users)
	if err != nil {
		t.Fatal(err)
	}
	experiments, err := bus.OpenKV(b.ctx, b.bus, contract.Experiments)
	if err != nil {
		t.Fatal(err)
	}
	for uid, tenant := range tenants {
		id := "of-" + userOf(uid)
		of := contract.ExperimentRecord{ID: id, State: contract.ExperimentRunning, Experiment: contract.Experiment{
			Name: "x", Job: train.Spec{User: userOf(uid), Tenant: tenant, Command: []string{"train"}},
		}}
		if err := experiments.Put(b.ctx, id, of); err != nil {
			t.Fatal(err)
		}
	}
	b.serve()
	owners := map[access.Scope]int{access.Own: askerUID, access.Tenants: mateUID, access.All: alienUID}
	cells, denials := 0, 0
	for _, role := range access.Roles() {
		if err := users.Put(b.ctx, userOf(askerUID), access.Person{Name: userOf(askerUID), Role: role, Tenant: "vision"}); err != nil {
			t.Fatal(err)
		}
		b.client = connectedAs(t, askerUID, b.config.SharedSocket)
		enter(b)
		b.until("the role is known", func() bool {
			_, page := ask[view.Records[access.Person]](b, "GET", "/api/v1/users")
			return len(page.Items) == 1 && page.Items[0].Role == role
		})
		for _, row := range access.Matrix() {
			allowed := access.Allowed(role, row.Operation)
			for scope, uid := range owners {
				job := "of-" + userOf(uid)
				r, asked := requests(job, fmt.Sprintf("%s-%d-%d", role, scope, cells))[row.Operation]
				if row.Operation == access.SeeSpec {
					cells++
					_, d := ask[json.RawMessage](b, "GET", "/api/v1/jobs/"+job)
					_, s := ask[json.RawMessage](b, "GET", "/api/v1/jobs/"+job+"/standing")
					_, h := ask[json.RawMessage](b, "GET", "/api/v1/records?id="+job)
					_, e := ask[json.RawMessage](b, "GET", "/api/v1/jobs/"+job+"/explanation")
					for _, said := range []json.RawMessage{d, s, h, e} {
						if shown := strings.Contains(string(said), "hush"); shown != (allowed >= scope) || !strings.Contains(string(said), job) {
							t.Errorf("a %s sees of a job of %s: %s", role, userOf(uid), said)
						}
					}
					for _, path := range []string{"/api/v1/jobs", "/api/v1/plan", "/api/v1/nodes", "/api/v1/models", "/api/v1/jobs/" + job + "/epochs"} {
						if _, l := ask[json.RawMessage](b, "GET", path); strings.Contains(string(l), "hush") {
							t.Errorf("GET %s shows a %s: %s", path, role, l)
						}
					}
					continue
				}
				if !asked {
					t.Fatalf("nobody asks to %s", row.Operation)
				}
				want := allowed >= scope
				if strings.Count(r.path, job) == 0 { // about no job
					want = allowed == access.All
				}
				cells++
				response := b.send(r.method, r.path, r.body)
				response.Body.Close()
				if row.Operation == access.Attach && !response.Close {
					t.Error("another request may follow on the connection of a terminal, while its body is still read")
				}
				denied := response.StatusCode == http.StatusForbidden
				if denied {
					denials++
				}
				if denied == want || response.StatusCode == http.StatusBadRequest || response.StatusCode == http.StatusUnprocessableEntity {
					t.Errorf("a %s may %s of %s: %s, want %v", role, row.Operation, userOf(uid), response.Status, want)
				}
			}
		}
	}
	if cells < 300 {
		t.Errorf("only %d requests", cells)
	}
	// Refusals are kept, each with its person, as far as their rate allows.
	kept, missed := 0, 0
	err = b.bus.Stored(b.ctx, event.StreamAccess, nil, time.Time{}, func(m bus.Message) {
		r, err := event.Decode[event.AccessRefused](m.Data)
		if err != nil || r.Person != userOf(askerUID) || r.Door != by || r.Operation == "" {
			t.Errorf("%s: %v", m.Data, err)
		}
		kept, missed = kept+1, missed+r.Missed
	})
	if err != nil || kept != denials || missed > 0 {
		t.Errorf("%d refusals kept and %d missed of %d, %v", kept, missed, denials, err)
	}
	t.Logf("%d requests", cells)
}

// What a body says about the person who asks does not count.
func TestARequestIsItsSenders(t *testing.T) {
	b := sharedBench(t)
	b.serve()
	b.client = connectedAs(t, askerUID, b.config.SharedSocket)
	b.put(train.Job{ID: "mine", State: train.StateQueued, Spec: train.Spec{User: userOf(askerUID)}})
	b.until("the job is known", func() bool { return b.state("mine") == train.StateQueued })
	for path, body := range map[string]string{"mine/cancel_requested": `{"by": "root"}`, "new/submitted": `{"name": "x", "command": ["true"]}`} {
		if response := b.send("POST", "/api/v1/jobs/"+path, body, "Yard-By", "root"); response.StatusCode != http.StatusAccepted {
			t.Errorf("%s: %s", path, response.Status)
		}
		id, fact, _ := strings.Cut(path, "/")
		m, err := b.bus.Last(b.ctx, event.StreamJobs, event.JobSubject(train.JobID(id), fact))
		who, unproven := m.Asker()
		if err != nil || unproven != nil || who.Person != userOf(askerUID) || who.Door != "socket" || strings.Contains(string(m.Data), "root") || !strings.Contains(string(m.Data), userOf(askerUID)) {
			t.Errorf("%s by %q: %s, %v", path, who, m.Data, err)
		}
	}
}

// A person who asks too often gets the time to ask again. The bound is that of the tenant's record, and acts at once.
func TestAPersonWhoAsksTooOftenWaits(t *testing.T) {
	b := sharedBench(t)
	users, err := bus.OpenKV(b.ctx, b.bus, contract.Users)
	if err != nil {
		t.Fatal(err)
	}
	tenants, err := bus.OpenKV(b.ctx, b.bus, contract.Tenants)
	if err != nil {
		t.Fatal(err)
	}
	bound := func(most int) {
		t.Helper()
		if err := tenants.Put(b.ctx, "vision", access.Tenant{Name: "vision", Bounds: access.Bounds{Requests: &most}}); err != nil {
			t.Fatal(err)
		}
		b.until("the bound is known", func() bool {
			_, page := ask[view.Records[access.Tenant]](b, "GET", "/api/v1/tenants")
			return len(page.Items) == 1 && page.Items[0].Requests != nil && *page.Items[0].Requests == most
		})
	}
	if err := users.Put(b.ctx, userOf(askerUID), access.Person{Name: userOf(askerUID), Role: access.User, Tenant: "vision"}); err != nil {
		t.Fatal(err)
	}
	b.serve()
	b.client = connectedAs(t, askerUID, b.config.SharedSocket)
	b.until("the person is known", func() bool {
		_, page := ask[view.Records[access.Person]](b, "GET", "/api/v1/users")
		return len(page.Items) == 1
	})
	bound(1)
	submit := func(id string) *http.Response {
		r := b.send("POST", "/api/v1/jobs/"+id+"/submitted", `{"name": "x", "command": ["true"]}`)
		t.Cleanup(func() { _ = r.Body.Close() })
		return r
	}
	if r := submit("first"); r.StatusCode != http.StatusAccepted {
		t.Errorf("the first: %s", r.Status)
	}
	r := submit("second")
	var p api.Problem
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil || r.StatusCode != http.StatusTooManyRequests || p.RetrySeconds < 1 || p.RetrySeconds > 60 ||
		r.Header.Get("Retry-After") != strconv.Itoa(p.RetrySeconds) || !strings.Contains(p.Detail, "TooManyRequests") {
		t.Errorf("the second: %s, %+v, %v", r.Status, p, err)
	}
	if _, err := b.bus.Last(b.ctx, event.StreamJobs, event.JobSubject("second", event.FactSubmitted)); err == nil {
		t.Error("it is stored")
	}
	if status, p := ask[api.Problem](b, "GET", "/api/v1/jobs/first/epochs"); status != http.StatusTooManyRequests {
		t.Errorf("the epochs of a job: %d %+v", status, p)
	}
	key, _ := access.Key(userOf(askerUID))
	told, err := b.bus.Last(b.ctx, event.StreamAccess, event.Subject{Entity: event.EntityAccess, ID: key, Fact: event.FactRefused, Version: 1})
	if err != nil {
		t.Fatalf("the audit trail does not have it: %v", err)
	}
	if body, err := event.Decode[event.AccessRefused](told.Data); err != nil || body.Operation != access.Submit || !strings.Contains(body.Message, "TooManyRequests") || !strings.Contains(body.Request, "second") {
		t.Errorf("%+v, %v", body, err)
	}
	bound(60_000)
	b.until("the new bound acts", func() bool { return submit("third").StatusCode == http.StatusAccepted })
}

// A person submits in his own name. What names another person is refused at once, and no record of it stays with her.
func TestNobodySubmitsInAnothersName(t *testing.T) {
	b := sharedBench(t)
	b.serve()
	b.client = connectedAs(t, askerUID, b.config.SharedSocket)
	for _, tt := range []struct {
		path, body string
		want       int
	}{
		{"jobs/spoof-1/submitted", `{"name": "x", "command": ["true"], "user": "ann"}`, http.StatusUnprocessableEntity},
		{"jobs/own-1/submitted", `{"name": "x", "command": ["true"], "user": "` + userOf(askerUID) + `"}`, http.StatusAccepted},
		{"jobs/own-2/submitted", `{"name": "x", "command": ["true"]}`, http.StatusAccepted},
		{"experiments/spoof-1/submitted", `{"experiment": {"name": "x", "job": {"command": ["true"], "user": "ann"}}}`, http.StatusUnprocessableEntity},
	} {
		r := b.send("POST", "/api/v1/"+tt.path, tt.body)
		var p api.Problem
		err := json.NewDecoder(r.Body).Decode(&p)
		_ = r.Body.Close()
		if r.StatusCode != tt.want || err != nil || tt.want == http.StatusUnprocessableEntity && (len(p.Reasons) != 1 || p.Reasons[0].Code != "NotYourself") {
			t.Errorf("%s: %s, %+v, %v", tt.path, r.Status, p, err)
		}
	}
	if _, err := b.bus.Last(b.ctx, event.StreamJobs, event.JobSubject("spoof-1", event.FactSubmitted)); err == nil {
		t.Error("a job in another's name is stored")
	}
}
