package nodeagent

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// waitingLog opens a latch when an agent says that it stands by.
type waitingLog struct {
	mu   sync.Mutex
	text bytes.Buffer
	said *tick.Latch
}

func (l *waitingLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.text.Write(p)
	if strings.Contains(l.text.String(), "another node agent with the same node name works in") {
		l.said.Open()
	}
	return n, err
}

func TestAnAgentWithTheNameOfAnotherOneAnnouncesNothing(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t)
	b := bustest.Connect(t, server, "test")
	nodes, err := bus.OpenKV(t.Context(), b, contract.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	first := t.TempDir()
	start(t, server.URL(), first)
	before := node(t, b, time.Time{})
	if !strings.HasSuffix(before.Owner.Place, ":"+first) {
		t.Errorf("the node has the owner %+v, want the folder %s", before.Owner, first)
	}
	foreign := make(chan train.Node, 1)
	log := &waitingLog{said: tick.NewLatch()}
	ctx, stop := context.WithCancel(within(t))
	var running conc.WaitGroup
	running.Go(func() {
		common := run.Common{NATS: server.URL(), HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: t.TempDir(), Node: "n1"}
		if err := run.Together(ctx, common, log, func(net.Addr) {}, service(t, "--device-kind=cpu", "--cpu-slots=1")); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		err := nodes.Watch(ctx, func(e bus.Entry[train.Node], _ bool) {
			if len(e.Value.Devices) == 1 {
				foreign <- e.Value
				stop()
			}
		}, nil)
		if err != nil {
			t.Error(err)
		}
	})
	log.said.Wait(ctx)
	stop()
	running.Wait()
	select {
	case n := <-foreign:
		t.Errorf("the second agent announced the node with %d devices, though the first one does", len(n.Devices))
	default:
	}
}

func TestAnAgentThatWasTakenOverSaysSo(t *testing.T) {
	t.Parallel()
	nodes, err := bus.OpenKV(t.Context(), bustest.Connect(t, bustest.Start(t), "test"), contract.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	agent := func(id string) ownership {
		return ownership{run.Ownership[train.Node]{
			Records: nodes.Own(), Key: "n1", Mine: train.Owner{ID: id}, Of: func(n train.Node) (train.Owner, time.Time) { return n.Owner, n.SeenAt },
		}}
	}
	first := agent("first")
	for range 2 {
		if err := first.write(within(t), train.Node{ID: "n1", SeenAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nodes.Put(within(t), "n1", train.Node{ID: "n1", Owner: train.Owner{ID: "second"}}); err != nil {
		t.Fatal(err)
	}
	if err := first.write(within(t), train.Node{ID: "n1", SeenAt: time.Now()}); !errors.Is(err, run.ErrTaken) {
		t.Errorf("error %v, want that the other agent has taken over", err)
	}
}
