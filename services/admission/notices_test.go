package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/notice"
)

// receiver is a web server that keeps the notices that it gets. It answers with a chosen status.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	answer int
	got    []notice.Notice
	came   chan string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{answer: http.StatusOK, came: make(chan string, 1000)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var n notice.Notice
		if err := json.NewDecoder(request.Body).Decode(&n); err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.answer == http.StatusOK {
			r.got = append(r.got, n)
		}
		w.WriteHeader(r.answer)
		r.came <- n.Key
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) say(answer int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// wait waits for a notice, taken or not.
func (r *receiver) wait(t *testing.T, b *bench, key string) {
	t.Helper()
	for {
		select {
		case came := <-r.came:
			if came == key {
				return
			}
		case <-b.ctx.Done():
			t.Fatalf("no notice %s", key)
		}
	}
}

// submitNotifying submits a job that tells its end and its preemptions to an address.
func submitNotifying(b *bench, id, url string) {
	b.send("yard.job."+id+".submitted.v1", fmt.Sprintf(
		`{"name":"n","command":["true"],"notify":[{"on":["ended","preempted"],"webhook":%q}]}`, url))
	b.await(train.JobID(id), inState(train.StateQueued))
}

// end plays the executor: a job starts, and ends.
func end(b *bench, id string) {
	b.sendAs("executor", "yard.job."+id+".started.v1", `{"attempt":1,"devices":["cpu:0"],"node":"n"}`)
	b.sendAs("executor", "yard.job."+id+".succeeded.v1", `{"attempt":1}`)
	b.await(train.JobID(id), inState(train.StateSucceeded))
}

// told waits until a notice is recorded.
func told(b *bench, id, key string) {
	b.t.Helper()
	kv, err := bus.OpenKV(b.ctx, b.bus, contract.Notices)
	if err != nil {
		b.t.Fatal(err)
	}
	found := false
	ctx, stop := b.until()
	defer stop()
	_ = kv.Watch(ctx, func(e bus.Entry[train.Notices], _ bool) {
		if e.Key == id && !e.Value.Told[key].IsZero() {
			found = true
			stop()
		}
	}, nil)
	if !found {
		b.t.Fatalf("notice %s was not recorded", key)
	}
}

// TestNotices: what happens while the service or the receiver is away is sent later, and once.
func TestNotices(t *testing.T) {
	b, r := newBench(t), newReceiver(t)
	b.notify = settings.Notify{Secret: "s", Allow: []string{"127.0.0.1/32"}, Users: map[string]string{"ann": r.URL + "/own"}}
	putNode(b)
	stop := b.serve()
	submitNotifying(b, "first", r.URL)
	end(b, "first")
	told(b, "first", "job/first/end/0")
	told(b, "first", "job/first/end/1") // the operator's configuration has one for each user

	// The receiver refuses, and the service dies between two tries.
	r.say(http.StatusServiceUnavailable)
	submitNotifying(b, "second", r.URL)
	end(b, "second")
	r.wait(t, b, "job/second/end/0")
	stop()
	r.say(http.StatusOK)
	stop = b.serve()
	told(b, "second", "job/second/end/0")
	told(b, "second", "job/second/end/1")

	// A notice is not sent again after another restart.
	stop()
	stop = b.serve()
	submitNotifying(b, "third", r.URL)
	end(b, "third")
	told(b, "third", "job/third/end/0")
	told(b, "third", "job/third/end/1")
	stop()
	var keys []string
	for _, n := range r.got {
		keys = append(keys, n.Key)
	}
	slices.Sort(keys)
	want := []string{"job/first/end/0", "job/first/end/1", "job/second/end/0", "job/second/end/1", "job/third/end/0", "job/third/end/1"}
	if !slices.Equal(keys, want) {
		t.Errorf("told %v, want %v", keys, want)
	}
}

// A person's receiver accepts connections and never answers.
func TestADeadWebhookHoldsUpNobody(t *testing.T) {
	b, r := newBench(t), newReceiver(t)
	asked := make(chan struct{}, 1000)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body) // else the server does not see that the sender gives up
		asked <- struct{}{}
		<-request.Context().Done()
	}))
	t.Cleanup(silent.Close)
	b.notify = settings.Notify{Allow: []string{"127.0.0.1/32"}}
	putNode(b)
	stop := b.serve()
	for i := range 3 {
		id := fmt.Sprint("dead-", i)
		submitNotifying(b, id, silent.URL)
		end(b, id)
	}
	<-asked
	submitNotifying(b, "fine", r.URL)
	end(b, "fine")
	soon := *b // before the first delivery is given up
	var cancel context.CancelFunc
	soon.ctx, cancel = context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	r.wait(t, &soon, "job/fine/end/0")
	stop()
}

func putNode(b *bench) {
	kv, err := bus.OpenKV(b.ctx, b.bus, contract.Nodes)
	if err == nil {
		_, err = kv.Swap(b.ctx, "n", train.Node{ID: "n", Cores: 1, Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU}}}, 0)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
