package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/checkpoint"
)

// TestStoppedWithinAnEpoch: a training of one epoch that is stopped after each heartbeat ends with the same bytes as in
// one go.
func TestStoppedWithinAnEpoch(t *testing.T) {
	var calls []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		calls = append(calls, r.URL.Path+" "+r.URL.RawQuery+string(body))
		_, _ = io.WriteString(w, `{"stop":true}`)
	}))
	defer api.Close()
	straight, pieces := t.TempDir(), t.TempDir()
	mustRun(t, straight, 1, 2, 1)
	attempts := 0
	for attempts < 10 {
		attempts++
		s, err := readSettings(smallNet("-epochs", "1"), lookup(map[string]string{
			"JOB_UUID": "job", "SWITCHYARD_SNAPSHOTS_DIR": pieces, "NUM_GPUS": "2", "HEARTBEAT_FREQ": "2", "SWITCHYARD_JOB_API": api.URL,
		}), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if err := train(context.Background(), s, newLedger(s.ledger, 0, io.Discard), io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
		state, err := checkpoint.Decode(snapshot(t, pieces, checkpoint.CurrentName))
		if err != nil {
			t.Fatal(err)
		}
		if state.Epochs == 1 {
			break
		}
	}
	if attempts != 4 { // 7 steps, two at a time
		t.Errorf("%d attempts, want 4", attempts)
	}
	if !bytes.Equal(snapshot(t, straight, checkpoint.CurrentName), snapshot(t, pieces, checkpoint.CurrentName)) {
		t.Error("stopped within its epoch and resumed, the training ends elsewhere than in one go")
	}
	all := strings.Join(calls, "\n")
	for _, want := range []string{`control step=4`, `"epochs_done":0,"epoch_step":4,"epoch_steps":7`, `"stops_at_steps":true`, `"outcome":"stopped"`} {
		if !strings.Contains(all, want) {
			t.Errorf("no call has %s:\n%s", want, all)
		}
	}
}
