package tuning

import (
	"math"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
)

// Case is a workload with the settings that may be chosen, the default first.
type Case struct {
	Workload
	Settings []contract.SettingValues
}

// Row is the duration of a trial under a mode.
type Row struct {
	Workload     string  `json:"workload"`
	Mode         string  `json:"mode"`
	Pass         int     `json:"pass"`
	TotalSeconds float64 `json:"total_seconds"`
	Epochs       int     `json:"epochs"`
	// Settings are those of the epochs, in their order.
	Settings []contract.SettingValues `json:"-"`
}

// Modes are the modes of Replay.
func Modes() []string { return []string{"fixed", "probe", "switchyard", "oracle"} }

// Play is how cases are replayed.
type Play struct {
	Mode string
	// Passes is how often all cases come, one after the other. What was learnt is kept.
	Passes int
	// Epochs is the number of epochs of each trial.
	Epochs int
	// Alone keeps the records of each workload from the others.
	Alone bool
}

// Replay plays all cases, pass by pass.
func Replay(cases []Case, p Play) []Row {
	var all []Row
	var known []contract.WorkloadCosts
	alone := make([][]contract.WorkloadCosts, len(cases))
	for pass := range p.Passes {
		for i, c := range cases {
			records := &known
			if p.Alone {
				records = &alone[i]
			}
			t := c.run(p, *records)
			*records = pipeline.Learn(*records, t)
			all = append(all, row(t, p.Mode, pass+1))
		}
	}
	return all
}

// run plays one trial to its end.
func (c Case) run(p Play, known []contract.WorkloadCosts) *pipeline.Trial {
	t := &pipeline.Trial{Workload: c.Name, BatchSize: c.BatchSize, Epochs: p.Epochs, Settings: c.Settings}
	rule := c.rule(p.Mode)
	for range p.Epochs {
		s := rule.Next(t, known)
		seconds, _ := c.Seconds(s)
		t.Ended = append(t.Ended, pipeline.Epoch{Setting: s, Cost: seconds})
	}
	return t
}

func (c Case) rule(mode string) pipeline.Rule {
	switch mode {
	case "probe":
		return pipeline.Probe{}
	case "switchyard":
		return pipeline.StandardRule()
	case "oracle":
		return always{c.best()}
	}
	return always{c.Settings[0]}
}

// always uses one setting.
type always struct{ setting contract.SettingValues }

// Next returns that setting.
func (a always) Next(*pipeline.Trial, []contract.WorkloadCosts) contract.SettingValues {
	return a.setting
}

// best is the fastest setting, the first of equals.
func (c Case) best() contract.SettingValues {
	best, least := c.Settings[0], math.Inf(1)
	for _, s := range c.Settings {
		if seconds, _ := c.Seconds(s); seconds < least {
			best, least = s, seconds
		}
	}
	return best
}

func row(t *pipeline.Trial, mode string, pass int) Row {
	r := Row{Workload: t.Workload, Mode: mode, Pass: pass, Epochs: len(t.Ended)}
	for _, e := range t.Ended {
		r.TotalSeconds += e.Cost
		r.Settings = append(r.Settings, e.Setting)
	}
	// Sums of decimal fractions come out as they are written.
	r.TotalSeconds = math.Round(r.TotalSeconds*1e6) / 1e6
	return r
}
