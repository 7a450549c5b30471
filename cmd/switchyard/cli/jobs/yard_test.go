package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// serveWeb runs the service web at Noon, and returns when it answers.
func serveWeb(t *testing.T, s *clitest.Terminal) console.Yard {
	t.Helper()
	y, _ := serveWebIn(t, s, t.TempDir())
	return y
}

// serveWebIn runs the service web with a data folder until stop is called.
func serveWebIn(t *testing.T, s *clitest.Terminal, dir string) (y console.Yard, stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	common := run.Common{NATS: s.Nats, HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: dir, Node: "n"}
	var running conc.WaitGroup
	running.Go(func() {
		if err := run.Together(ctx, common, io.Discard, func(net.Addr) {}, web.New(settings.Web{}, func() time.Time { return clitest.Noon })); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	y = console.OnSocket(filepath.Join(common.DataDir, api.SocketName))
	for range tick.Every(ctx, 20*time.Millisecond) {
		if _, err := y.Jobs(ctx, view.Query{}); err == nil {
			return y, stop
		}
	}
	t.Fatal("the service does not answer")
	return nil, nil
}

// A command that waits or follows goes on with the bus when the service web ends, and ends as it would have.
func TestFollowingOutlivesTheService(t *testing.T) {
	end := func(t *testing.T, s *clitest.Terminal) {
		t.Helper()
		j := clitest.Resnet()
		j.State, j.Message = train.StateSucceeded, "done"
		clitest.PutJob(t, s.Bus, j)
	}
	for name, follow := range map[string]func(t *testing.T, s *clitest.Terminal, y console.Yard, stop func()) string{
		"wait": func(t *testing.T, s *clitest.Terminal, y console.Yard, stop func()) string {
			t.Helper()
			var states []string
			err := y.Follow(t.Context(), []train.JobID{"resnet-4f2a"}, func(j train.Job) bool {
				if len(states) == 0 { // the service has answered, and is asked for more
					stop()
					end(t, s)
				}
				states = append(states, string(j.State))
				return !j.State.Terminal()
			})
			return fmt.Sprintf("%s %s %v", states[0], states[len(states)-1], err)
		},
		"logs -f": func(t *testing.T, s *clitest.Terminal, y console.Yard, stop func()) string {
			t.Helper()
			(&clitest.LogServer{Output: []byte("one\ntwo\nthree\n"), Piece: 4, Ended: true}).Serve(t, s.Bus, "gpu1")
			out := &onWrite{do: func() { stop(); end(t, s) }}
			s.Stdout = out
			err := Logs(t.Context(), s.Console, y, "resnet-4f2a", LogOptions{Tail: -1, follow: true, raw: true})
			return fmt.Sprintf("%s %v", out, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := clitest.New(t)
			s.Fill(t)
			dir := t.TempDir()
			if err := installation.WriteContext(s.Context, installation.Context{NATS: s.Nats, DataDir: dir}); err != nil {
				t.Fatal(err)
			}
			_, stop := serveWebIn(t, s, dir)
			y, done, err := s.Console.Yard(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			want := map[string]string{"wait": "running succeeded <nil>", "logs -f": "one\ntwo\nthree\n <nil>"}[name]
			if got := follow(t, s, y, stop); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

func TestEitherYardSaysTheSame(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	labelled := clitest.Bert()
	labelled.Spec.Project, labelled.Spec.Labels = "nlp", map[string]string{"phase": "warmup", "lr": "3"}
	clitest.PutJob(t, s.Bus, labelled)
	onSocket := serveWeb(t, s)
	for _, o := range []PsOptions{{}, {AllUsers: true}, {AllUsers: true, Newest: 2}, {AllUsers: true, selector: selector{states: []string{"running", "failed"}}}, {selector: selector{states: []string{"queued"}}}, {selector: selector{user: "bob", name: "be*", project: "nlp", labels: []string{"phase=warmup", "lr=3"}}}} {
		for _, s.Output = range []string{"table", "json"} {
			var said []string
			for _, y := range []console.Yard{s.Yard(clitest.Noon), onSocket} {
				if err := Ps(t.Context(), s.Console, y, o, clitest.Noon); err != nil {
					t.Fatal(err)
				}
				out, told := s.Printed()
				said = append(said, out+told)
			}
			if said[0] != said[1] || said[0] == "" {
				t.Errorf("%+v as %s\nby the bus:\n%s\nby the service:\n%s", o, s.Output, said[0], said[1])
			}
		}
	}
}

func TestEitherYardKnowsTheSameOfAJob(t *testing.T) {
	s := clitest.New(t)
	s.Fill(t)
	clitest.Publish(t, s.Bus, event.OnceFact("unread-1", event.FactSubmitted, "submitted", event.Submitted{Spec: train.Spec{Name: "unread", User: "eve"}}))
	again := clitest.Vgg()
	again.ID, again.Spec.Continue = "again-1", "vgg-0c"
	clitest.PutJob(t, s.Bus, again)
	onBus, onSocket := s.Yard(clitest.Noon), serveWeb(t, s)
	// Over the bus, only a name makes it read all jobs.
	for i, y := range []console.Yard{onBus, onSocket} {
		searched := i == 1
		if d, err := y.Job(t.Context(), "vgg-0c", exit.UnknownJob); err != nil || (len(d.ContinuedBy) == 1) != searched || d.Unsearched == searched {
			t.Errorf("continued by %v, not searched %t, %v; want searched %t", d.ContinuedBy, d.Unsearched, err, searched)
		}
	}
	for _, ref := range []string{"resnet-4f2a", "bert", "mni", "vgg-0c", "unread-1", "resnett", "nothing\x1b[31m", "a/b?c", "%2e"} {
		var said []string
		for _, y := range []console.Yard{onBus, onSocket} {
			d, err := y.Job(t.Context(), ref, exit.UnknownJob)
			d.ContinuedBy, d.Unsearched = nil, false
			text, broken := json.MarshalIndent(d, "", " ")
			if broken != nil {
				t.Fatal(broken)
			}
			standing, unknown := y.Standing(t.Context(), train.JobID(ref))
			stands, broken := json.MarshalIndent(standing, "", " ")
			if broken != nil {
				t.Fatal(broken)
			}
			said = append(said, fmt.Sprintf("%s\n%v, exit code %d\n%s\n%v, exit code %d", text, err, exit.Code(err), stands, unknown, exit.Code(unknown)))
		}
		if diff := cmp.Diff(said[0], said[1]); diff != "" {
			t.Errorf("%q (-bus +service):\n%s", ref, diff)
		}
	}
}

// Either yard shows the same nodes, with what keeps jobs off them, the jobs there and their power.
func TestEitherYardShowsTheSameCluster(t *testing.T) {
	s := clitest.New(t)
	s.Fill(t)
	clitest.Put(t, s.Bus, contract.Conditions, "cpu1", train.NodeCondition{Cordoned: true})
	clitest.Put(t, s.Bus, contract.Eligibility, "gpu1", train.Eligibility{Sequence: 7, Orders: map[train.DeviceID]train.NodeOrder{"gpu:3": {Drain: true, By: "ops", At: clitest.Noon}}})
	var said []string
	for _, y := range []console.Yard{s.Yard(clitest.Noon), serveWeb(t, s)} {
		nodes, err := y.Cluster(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		records, err := y.Records(t.Context(), []train.JobID{"vgg-0c", "nobody", "resnet-4f2a"})
		if err != nil {
			t.Fatal(err)
		}
		if len(nodes) != 2 || len(nodes[0].Exclusions) != 1 || len(nodes[1].Exclusions) != 1 || nodes[1].Power == nil || len(nodes[1].Jobs) != 1 || nodes[1].OrdersSequence != 7 ||
			len(records) != 2 || records[0].ID != "vgg-0c" {
			t.Errorf("%+v, %+v", nodes, records)
		}
		text, err := json.MarshalIndent([]any{nodes, records}, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, string(text))
	}
	if diff := cmp.Diff(said[0], said[1]); diff != "" {
		t.Errorf("(-bus +service):\n%s", diff)
	}
}

// A command asks the service of its own installation, and the bus if that is away or serves another bus.
func TestTheServiceIsAskedFirst(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	dir, about := t.TempDir(), api.About{}
	t.Setenv("SWITCHYARD_CONTEXT", filepath.Join(dir, "context.json"))
	if err := installation.WriteContext(installation.ContextPath(), installation.Context{NATS: s.Nats, DataDir: dir}); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(about) })
	mux.HandleFunc("GET /api/v1/jobs", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(view.Page{Jobs: []view.Job{{ID: "known-to-the-service", State: train.StateQueued}}})
	})
	listener, err := installation.ListenUnix(t.Context(), filepath.Join(dir, api.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	var serving conc.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	defer serving.Wait()
	defer server.Close()
	asksService := func() bool {
		t.Helper()
		code, out, told := s.Run("ps", "-A")
		if code != 0 {
			t.Fatalf("exit %d: %s%s", code, out, told)
		}
		if strings.Contains(out, "resnet-4f2a") == strings.Contains(out, "known-to-the-service") {
			t.Fatalf("neither yard: %s%s", out, told)
		}
		return strings.Contains(out, "known-to-the-service")
	}
	if about.Bus = s.Nats; !asksService() {
		t.Error("the service of this bus was not asked")
	}
	if about.Bus = "nats://127.0.0.1:1"; asksService() {
		t.Error("the service of another bus was asked")
	}
	about.Bus = s.Nats
	about.Build = contract.Build{Version: "v9.0.0", Events: 1, Records: 9}
	if code, _, told := s.Run("ps"); code != exit.Failed || !strings.Contains(told, "the service web speaks facts v1 and records v9, as switchyard v9.0.0 does: upgrade this program") {
		t.Errorf("a newer service: exit %d: %s", code, told)
	}
	server.Close()
	if asksService() {
		t.Error("a dead service was asked")
	}
}
