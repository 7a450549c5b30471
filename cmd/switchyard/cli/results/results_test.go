package results

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/jobfiles"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// yard has a job on node gpu1, which answers for its files.
func yard(t *testing.T) (*clitest.Terminal, installation.Layout) {
	t.Helper()
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	l := installation.Layout{DataDir: t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	var serving conc.WaitGroup
	t.Cleanup(func() { cancel(); serving.Wait() })
	serving.Go(func() {
		_ = bus.Answer(ctx, s.Bus, rpc.FileSubject("gpu1"), func(_ context.Context, r rpc.FileRequest) (rpc.FileAnswer, error) {
			return jobfiles.Answer(l, "gpu1", r)
		})
	})
	for ctx.Err() == nil { // until it has subscribed
		_, err := Ask(ctx, s.Yard(clitest.Noon), rpc.FileRequest{Job: "resnet-4f2a"})
		if err == nil || !strings.Contains(err.Error(), "not running") {
			break
		}
	}
	for i, loss := range []float64{2, 1.5, 1.25} {
		clitest.Publish(t, s.Bus, event.JobFact("resnet-4f2a", event.FactEpochEnded, fmt.Sprint("epoch/", i+1), event.EpochEnded{
			Attempt: 1, EpochsDone: i + 1, Devices: 2, EpochSeconds: 3, Loss: &loss, Metrics: map[string]float64{"accuracy": loss / 4},
		}))
	}
	clitest.Put(t, s.Bus, contract.EnergyProgress, contract.EnergyProgressKey("resnet-4f2a"), train.EnergyProgress{
		Job: "resnet-4f2a", Epochs: []train.EpochEnergy{{EpochsDone: 1, Energy: 20 * unit.Joule}},
	})
	return s, l
}

func TestFilesAreListedAndFetched(t *testing.T) {
	s, l := yard(t)
	saved := filepath.Join(l.Snapshots("resnet-4f2a"), "0537e6")
	model := strings.Repeat("model ", 200_000)
	if err := os.MkdirAll(saved, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(saved, "model.pt"), []byte(model), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := s.Run("get", "resnet"); code != exit.OK || !strings.Contains(out, "checkpoints/model.pt") || !strings.Contains(out, metricsName) || !strings.Contains(stderr, saved) {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
	to := filepath.Join(t.TempDir(), "new")
	code, out, stderr := s.Run("get", "resnet", "checkpoints/model.pt", "--to", to)
	if got, err := os.ReadFile(filepath.Join(to, "model.pt")); code != exit.OK || err != nil || string(got) != model || out != filepath.Join(to, "model.pt")+"\n" {
		t.Errorf("exit %d, %d bytes, %v: %s%s", code, len(got), err, out, stderr)
	}
	if code, _, stderr := s.Run("get", "resnet", "checkpoints/none", "--to", to); code != exit.Failed || !strings.Contains(stderr, "no such file") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if left, _ := os.ReadDir(to); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if code, _, stderr := s.Run("get", "bert"); code != exit.Failed || !strings.Contains(stderr, "has not started") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if code, out, _ := s.Run("get", "resnet", metricsName, "--to", "-"); code != exit.OK || !strings.HasPrefix(out, "epoch,time,attempt,devices,seconds,step_seconds,global_batch,energy_j,loss,accuracy\n1,") ||
		!strings.Contains(out, ",1,2,3,,,20,2,0.5\n") || !strings.Contains(out, ",1,2,3,,,,1.25,0.3125\n") {
		t.Errorf("exit %d: %s", code, out)
	}
}

func TestPlot(t *testing.T) {
	s, _ := yard(t)
	if code, out, stderr := s.Run("plot", "resnet"); code != exit.OK || !strings.Contains(out, "*") || !strings.Contains(out, "2 |*") || !strings.Contains(out, "devices") {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
	path := filepath.Join(t.TempDir(), "plot.svg")
	if code, _, stderr := s.Run("plot", "resnet", "--metric", "accuracy", "--svg", path); code != exit.OK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	svg, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = svg.Close() }()
	drawings := 0
	for d := xml.NewDecoder(svg); ; {
		token, err := d.Token()
		if err == io.EOF { //nolint:errorlint // as the decoder returns it
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, is := token.(xml.StartElement); is && e.Name.Local == "svg" {
			drawings++
		}
	}
	if drawings != 3 {
		t.Errorf("%d drawings, want one around two", drawings)
	}
	for _, output := range []string{"table", "json"} {
		if code, out, stderr := s.Run("plot", "resnet", "--metric", "bleu", "-o", output); code != exit.Failed || out != "" || !strings.Contains(stderr, "has reported no bleu") {
			t.Errorf("exit %d: %s%s", code, out, stderr)
		}
	}
	code, out, _ := s.Run("plot", "resnet", "-o", "json")
	drawn := clitest.Parse[map[string]any](t, out)
	if course, is := drawn["course"].([]any); code != exit.OK || !is || len(course) == 0 || fmt.Sprint(course[0].(map[string]any)["y"]) != "2" {
		t.Errorf("exit %d: %s", code, out)
	}
	if points := devicesOf(clitest.Resnet(), clitest.Noon); points[len(points)-1].X != (70*time.Minute).Seconds() || points[len(points)-1].Y != 2 {
		t.Errorf("%v", points)
	}
}

// A stand-in for tensorboard shows how it is called.
func TestTensorBoard(t *testing.T) {
	s, l := yard(t)
	if err := os.MkdirAll(l.Work("resnet-4f2a"), 0o700); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := s.Run("tensorboard", "resnet"); code != exit.Failed || !strings.Contains(stderr, "no TensorBoard event files") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if err := os.MkdirAll(filepath.Join(l.Work("resnet-4f2a"), "runs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.Work("resnet-4f2a"), "runs", "events.out.tfevents.1.host"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	spec := "resnet-4f2a/runs:" + filepath.Join(l.Work("resnet-4f2a"), "runs")
	if code, _, stderr := s.Run("tensorboard", "resnet"); code != exit.Failed || !strings.Contains(stderr, "pip install tensorboard, then run: tensorboard --logdir_spec "+spec) {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if err := os.WriteFile(filepath.Join(bin, "tensorboard"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := s.Run("tensorboard", "resnet", "--", "--port", "6007"); code != exit.OK || out != "--logdir_spec "+spec+" --port 6007\n" {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
}
