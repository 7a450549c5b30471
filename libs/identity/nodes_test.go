package identity_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// agentOf connects as the agent of a node, with a client that knows nothing of Switchyard.
func agentOf(t *testing.T, s *busserver.Server, keys identity.Keys, node string) *nats.Conn {
	t.Helper()
	key, err := nats.NkeyOptionFromSeed(string(keys) + "/nodes/" + node + "/node.nk")
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(s.URL(), key, nats.CustomInboxPrefix(identity.InboxPrefix(identity.Node)), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// The agent of a node tries to publish every fact, to write every bucket for itself and for another node, and to ask
// JetStream for whatever makes or changes something.
func TestTheAgentOfANodeSpeaksForItAlone(t *testing.T) {
	server, keys := bustest.StartGuarded(t, "n1", "n2")
	_ = bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: "operator", Keys: string(keys)})
	nc := agentOf(t, server, keys, "n1")
	ofNode := map[string]bool{"energy.measured": true, "probe.counted": true}
	ofJobs := map[string]bool{"job.epoch_ended": true, "job.checkpoint_written": true, "job.outgrew": true, "sample.stepped": true}
	want := map[string]bool{
		"$JS.API.STREAM.DELETE.JOBS": false, "$JS.API.STREAM.CREATE.X": false, "$JS.API.STREAM.UPDATE.JOBS": false, "$JS.API.STREAM.PURGE.KV_nodes": false,
		"$JS.API.CONSUMER.CREATE.KV_nodes": false, "$JS.API.CONSUMER.CREATE.JOBS.x.yard.job.>": false, "$JS.API.CONSUMER.MSG.NEXT.JOBS.admission": false, "$JS.ACK.JOBS.admission.1.1.1.1.1": false,
		"$JS.API.STREAM.MSG.GET.KV_jobs": false, "$JS.API.DIRECT.GET.KV_jobs": false, "$JS.API.DIRECT.GET.KV_jobs.$KV.jobs.x": false, "$JS.API.DIRECT.GET.JOBS": false,
		"$JS.API.DIRECT.GET.JOBS.yard.job.x.submitted.v1": false, "$JS.API.DIRECT.GET.KV_attempts": true, "$JS.API.STREAM.MSG.GET.KV_attempts": true, "$JS.API.STREAM.MSG.GET.JOBS": false, "switchyard.executor.n1.terminal": false, "switchyard.executor.n2.logs": false,
		"switchyard.changes.attempts.x": false, "_INBOX.web.x": false, "$SYS.REQ.SERVER.PING": false, "anything": false,
	}
	for _, k := range event.Kinds() {
		name := k.Entity + "." + k.Fact
		for _, id := range []string{"n1", "n2"} {
			subject := event.Subject{Entity: k.Entity, ID: id, Fact: k.Fact, Version: k.Version}.String()
			want[subject] = ofJobs[name] || ofNode[name] && id == "n1"
		}
	}
	for _, k := range contract.Buckets() {
		for _, key := range []string{"n1", "n2", "x.1"} {
			want["$KV."+k.Name+"."+key] = k.Name == string(contract.Reports) && key == "x.1" || key == "n1" && (k.Name == string(contract.Nodes) || k.Name == string(contract.Paths))
		}
	}
	for subject, may := range want {
		if got := published(t, nc, subject); got != may {
			t.Errorf("the agent of n1 publishes %s: %v, want %v", subject, got, may)
		}
	}
	t.Logf("%d subjects", len(want))
	if sub, err := nc.SubscribeSync("yard.>"); err == nil {
		if _, err := sub.NextMsg(100 * time.Millisecond); err == nil {
			t.Error("the agent hears facts")
		}
	}
}

// A request makes the server write its answer where the reply subject says. That is in the account of the node, too.
func TestNoReplySubjectWritesForAnotherNode(t *testing.T) {
	server, keys := bustest.StartGuarded(t, "n1", "n2")
	operator := bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: "operator", Keys: string(keys)})
	nodes, err := bus.OpenKV(t.Context(), operator, contract.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	if err := nodes.Put(t.Context(), "n1", train.Node{ID: "n1", Name: "forged"}); err != nil {
		t.Fatal(err)
	}
	nc := agentOf(t, server, keys, "n1")
	for _, reply := range []string{"$KV.nodes.n2", "yard.energy.n2.measured.v1", "yard.job.x.failed.v1", "$JS.API.STREAM.DELETE.JOBS", "$KV.jobs.x"} {
		for subject, body := range map[string]string{
			"$JS.API.DIRECT.GET.KV_nodes.$KV.nodes.n1": "", "$JS.API.DIRECT.GET.KV_nodes": `{"seq":1,"next_by_subj":"$KV.nodes.>","batch":10}`, "yard.energy.n1.measured.v1": "{}",
		} {
			if err := errors.Join(nc.PublishRequest(subject, reply, []byte(body)), nc.Flush()); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What is asked behind all that is answered behind it.
	if _, err := nc.Request("$JS.API.STREAM.INFO.KV_nodes", nil, time.Minute); err != nil {
		t.Fatal(err)
	}
	entries, err := nodes.List(t.Context())
	if err != nil || len(entries) != 1 {
		t.Errorf("nodes %v, %v", entries, err)
	}
	for stream, subject := range map[string]event.Subject{
		event.StreamJobs: event.JobSubject("x", event.FactFailed), event.StreamSamples: {Entity: "energy", ID: "n2", Fact: event.FactMeasured, Version: 1},
	} {
		if m, err := operator.Last(t.Context(), stream, subject); !errors.Is(err, bus.ErrNotFound) {
			t.Errorf("%s is stored: %s, %v", subject, m.Data, err)
		}
	}
}

// The agent sees what concerns it as it changes, and writes its own record, with the client of Switchyard.
func TestAnAgentWorksFromItsAccount(t *testing.T) {
	server, keys := bustest.StartGuarded(t, "n1", "n2")
	operator := bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: "operator", Keys: string(keys)})
	agent := bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: identity.Agent, Keys: string(keys) + "/nodes/n1"})
	theirs, err := bus.OpenKV(t.Context(), operator, contract.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	put := func(a train.Attempt) {
		t.Helper()
		if err := theirs.Put(t.Context(), string(a.Job), a); err != nil {
			t.Fatal(err)
		}
	}
	const many = 600 // more than one request asks for
	for i := range many {
		put(train.Attempt{Job: train.JobID("j" + string(rune('a'+i%26)) + time.Duration(i).String()), Number: 1})
	}
	attempts, err := bus.OpenKV(t.Context(), agent, contract.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := attempts.List(t.Context())
	if err != nil || len(listed) != many {
		t.Fatalf("%d attempts, want %d: %v", len(listed), many, err)
	}
	type change struct {
		key     string
		number  int
		deleted bool
	}
	changes, synced := make(chan change, many), make(chan struct{}, 10)
	ctx, stop := context.WithCancel(t.Context())
	var watching conc.WaitGroup
	t.Cleanup(func() { stop(); watching.Wait() })
	watching.Go(func() {
		_ = attempts.Watch(ctx, func(e bus.Entry[train.Attempt], deleted bool) {
			if e.Key == "news" {
				changes <- change{e.Key, e.Value.Number, deleted}
			}
		}, func() { synced <- struct{}{} })
	})
	<-synced
	put(train.Attempt{Job: "news", Number: 1})
	if got := <-changes; got.number != 1 {
		t.Errorf("%+v", got)
	}
	put(train.Attempt{Job: "news", Number: 2})
	if got := <-changes; got.number != 2 {
		t.Errorf("%+v", got)
	}
	e, err := attempts.Get(t.Context(), "news")
	if err != nil || e.Value.Number != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	if err := theirs.Delete(t.Context(), "news", e.Revision); err != nil {
		t.Fatal(err)
	}
	if got := <-changes; !got.deleted {
		t.Errorf("%+v", got)
	}
	own, err := bus.OpenKV(t.Context(), agent, contract.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	if err := own.Put(t.Context(), "n1", train.Node{ID: "n1"}); err != nil {
		t.Errorf("its own record: %v", err)
	}
}

// The agent of an earlier version sends batches. The relay refuses them as a server that has none, and such an agent
// then sends message by message.
func TestARelayRefusesBatches(t *testing.T) {
	server, keys := bustest.StartGuarded(t, "n1")
	admission := bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: "admission", Keys: string(keys)})
	ctx, stop := context.WithCancel(t.Context())
	var relay conc.WaitGroup
	t.Cleanup(func() { stop(); relay.Wait() })
	relay.Go(func() { _ = admission.Relay(ctx, func(context.Context, string, bus.Message) error { return nil }) })
	nc := agentOf(t, server, keys, "n1")
	message := &nats.Msg{Subject: "yard.energy.n1.measured.v1", Data: []byte("{}"), Header: nats.Header{
		"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"1"}, "Nats-Batch-Commit": {"1"},
	}}
	for want, m := range map[string]*nats.Msg{"10174": message, event.StreamSamples: {Subject: message.Subject, Data: message.Data}} {
		answer, err := nc.RequestMsg(m, time.Minute)
		for errors.Is(err, nats.ErrNoResponders) { // the relay has not begun
			answer, err = nc.RequestMsg(m, time.Minute)
		}
		if err != nil || !strings.Contains(string(answer.Data), want) {
			t.Errorf("%v, %v, want %s", answer, err, want)
		}
	}
}

// An agent asks for what it was not told: if a message of the server is lost, and if only a later one comes.
func TestAnAgentAsksForWhatItWasNotTold(t *testing.T) {
	server, keys := bustest.StartGuarded(t, "n1")
	operator := bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: "operator", Keys: string(keys)})
	agent := bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: identity.Agent, Keys: string(keys) + "/nodes/n1"})
	js := bustest.JetStream(t, server.URL(), bustest.Key(t, keys, identity.Operator))
	stream, err := js.Stream(t.Context(), "KV_"+string(contract.Attempts))
	if err != nil {
		t.Fatal(err)
	}
	telling, silent := stream.CachedInfo().Config, stream.CachedInfo().Config
	silent.RePublish = nil
	theirs, err := bus.OpenKV(t.Context(), operator, contract.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	attempts, err := bus.OpenKV(t.Context(), agent, contract.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	seen, synced := make(chan string, 100), make(chan struct{}, 10)
	ctx, stop := context.WithCancel(t.Context())
	var watching conc.WaitGroup
	t.Cleanup(func() { stop(); watching.Wait() })
	watching.Go(func() {
		_ = attempts.Watch(ctx, func(e bus.Entry[train.Attempt], _ bool) { seen <- e.Key }, func() { synced <- struct{}{} })
	})
	<-synced
	put := func(id train.JobID, how jetstream.StreamConfig) {
		t.Helper()
		_, err := js.UpdateStream(t.Context(), how)
		if err := errors.Join(err, theirs.Put(t.Context(), string(id), train.Attempt{Job: id, Number: 1})); err != nil {
			t.Fatal(err)
		}
	}
	want := func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			if got := <-seen; got != key {
				t.Errorf("the agent hears of %s, want %s", got, key)
			}
		}
	}
	put("told", telling)
	want("told")
	put("lost", silent)
	want("lost")
	put("before", silent)
	put("behind", telling)
	want("before", "behind")
}
