package sim

import (
	"math"

	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
)

// Case is a workload with the settings that may be chosen, the default first.
type Case struct {
	Workload
	Settings []pipeline.Setting
}

// Row is what a trial took under a mode.
type Row struct {
	Workload     string  `json:"workload"`
	Mode         string  `json:"mode"`
	Pass         int     `json:"pass"`
	TotalSeconds float64 `json:"total_seconds"`
	Epochs       int     `json:"epochs"`
	// Settings are those of the epochs, in their order.
	Settings []pipeline.Setting `json:"-"`
}

// Modes are the names of what Replay knows.
func Modes() []string { return []string{"fixed", "probe", "switchyard", "oracle"} }

// Play is how cases are replayed.
type Play struct {
	Mode string
	// Passes is how often the cases come, one after the other; what was learnt is kept.
	Passes int
	// Epochs is how many each trial has.
	Epochs int
	// Alone keeps what a workload taught from the others.
	Alone bool
}

// Replay plays all cases, pass by pass.
func Replay(cases []Case, p Play) []Row {
	var all []Row
	var known []pipeline.Record
	alone := make([][]pipeline.Record, len(cases))
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
func (c Case) run(p Play, known []pipeline.Record) *pipeline.Trial {
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
		return pipeline.Always{Setting: c.best()}
	}
	return pipeline.Fixed{}
}

// best is the fastest setting, of equals the first.
func (c Case) best() pipeline.Setting {
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
