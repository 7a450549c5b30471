package conduct

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
)

// MostEpochs bounds the epochs of all trials of an experiment: its record stores each.
const MostEpochs = 10_000

// MostBytes bounds a record; beyond it the experiment stops, with room left to record what becomes of its jobs.
const MostBytes = event.MaxStoredBytes / 4 * 3

// problems collects the errors of a submission.
type problems []error

// require adds an error unless ok.
func (p *problems) require(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// add adds an error that is not nil.
func (p *problems) add(err error) {
	if err != nil {
		*p = append(*p, err)
	}
}

// Check returns all errors of a submission that did not come from a file.
func Check(id string, e file.Experiment) error {
	var p problems
	p.require(len(id) <= file.LongestName,
		"id %.80q: want at most %d characters, to leave room for the numbers of trials", id, file.LongestName)
	p.require(e.Named(), "name %.80q: want 1 to %d letters, digits, '-' or '_', beginning with a letter or digit",
		e.Name, file.LongestName)
	if e.Profiles != "" {
		_, err := train.ParseJobID(e.Profiles)
		p.require(err == nil, "profiles: %w", err)
	}
	p.require(slices.Contains(file.Modes(), e.Mode), "mode %.80q: want v1, v2 or pipetune", e.Mode)
	p.system(e.System)
	p.require(e.Concurrency >= 1, "concurrency %d: want 1 or more", e.Concurrency)
	all := e.Search.Trials * e.Search.MaxEpochs
	p.require(all >= 0 && all <= MostEpochs, "%d trials of %d epochs: want at most %d epochs in all", e.Search.Trials,
		e.Search.MaxEpochs, MostEpochs)
	field, wrong := e.FrozenDevices()
	p.require(wrong == "", "job.%s: %s", field, wrong)
	field, wrong = e.FrozenEpochs()
	p.require(wrong == "", "%s: %s", field, wrong)
	p.require(e.Objective.Metric != "", "objective: is missing")
	p.require(e.Search.MaxEpochs == e.Job.MaxEpochs, "search.max_epochs %d: want that of the job, %d",
		e.Search.MaxEpochs, e.Job.MaxEpochs)
	_, err := e.Searcher()
	p.add(err)
	p.job(e.Job)
	return errors.Join(p...)
}

// system checks the system parameters.
func (p *problems) system(factors []contract.Factor) {
	for i, f := range factors {
		if err := file.CheckFactor(f); err != nil {
			p.add(err)
			continue
		}
		twice := slices.ContainsFunc(factors[:i], func(g contract.Factor) bool { return g.Name == f.Name })
		p.require(!twice, "system.%s: is given twice", f.Name)
	}
	all := file.Combinations(factors)
	p.require(all <= file.MostSettings, "system: %g combinations of values: want at most %d", all, file.MostSettings)
}

// Lacks explains which of the named nodes is unknown, or does not measure with the named meter; without a code none is
// missing. A meter without nodes has to be on some node.
func Lacks(p contract.PowerMeter, nodes []train.Node) train.Reason {
	meters := func(n train.Node) bool { return p.Meter == "" || slices.Contains(n.Meters, p.Meter) }
	noMeter := func(where string) train.Reason {
		return train.Reason{
			Code: "NoSuchMeter", Message: fmt.Sprintf("powerMeter: no %s measures %s", p.Meter, where),
			Hint: fmt.Sprintf("set nodeagent.%s there, or leave powerMeter out", map[string]string{"pcm": "pcm_logs", "pdu": "pdu_url and pdu_outlets"}[p.Meter]),
		}
	}
	if len(p.Nodes) == 0 && !slices.ContainsFunc(nodes, meters) {
		return noMeter("any node")
	}
	for _, name := range p.Nodes {
		i := slices.IndexFunc(nodes, func(n train.Node) bool { return n.ID.Answers(name) || n.Name == name })
		switch {
		case i < 0:
			return train.Reason{
				Code: "UnknownNode", Message: fmt.Sprintf("nodes: no agent runs on %.80q, so nothing can be measured there", name),
				Hint: "start a node agent there (with --device-kind gpu it offers no processors to jobs), or leave nodes out",
			}
		case !meters(nodes[i]):
			return noMeter(name)
		}
	}
	return train.Reason{}
}

// job checks the job of the trials as strictly as a submission.
func (p *problems) job(spec train.Spec) {
	data, err := json.Marshal(spec)
	if err != nil {
		p.add(fmt.Errorf("job: %w", err))
		return
	}
	_, reasons := event.DecodeSubmission(data)
	for _, r := range reasons {
		p.add(fmt.Errorf("job: %s", r))
	}
}
