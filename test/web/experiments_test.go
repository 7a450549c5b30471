package web

import (
	"os"
	"path/filepath"
	"testing"
)

// search runs a small search under an id.
func (y *yard) search(id string) {
	y.t.Helper()
	const text = `
name: tiny
job:
  name: tiny
  command: [sh, -c, "for i in 1 2 3; do echo epoch $i loss 0.$((4-i))$SWITCHYARD_PARAM_SIZE; done"]
  progress: {pattern: 'epoch (?P<epoch>\d+) loss (?P<loss>\S+)'}
  max_epochs: 3
space:
  size: [1, 2]
  optimizer: [sgd, "<b>adam</b>"]
objective: loss
search: {algorithm: grid, trials: 4}
`
	file := filepath.Join(y.dir, "search.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		y.t.Fatal(err)
	}
	y.command("tune", "run", "--id", id, file)
}

// A search is seen as a whole: curves, the best so far, parameters and results, and every trial with its job.
func TestTheExperimentsPage(t *testing.T) {
	y := newYard(t)
	y.search("searched")
	y.open(y.command("open"))
	y.at("#/experiments")
	y.shows("searched", "finished", "least loss", "0.11")
	y.at("#/experiments/searched")
	y.shows("Learning curves", "Best so far", "Parameters and result", "<b>adam</b>", "trial 3", "ended")
	y.at("#/jobs/searched-t0")
	y.shows("trial of searched")
}
