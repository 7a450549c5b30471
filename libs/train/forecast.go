package train

import "time"

// Forecast is when a job starts and ends by a plan, in seconds after its decision. The truth lies between Low and High
// in eight of ten cases. A part is nil if it is unknown; a job that has devices has no Start.
type Forecast struct {
	// Start is when the job gets its devices.
	Start *Span `json:"start,omitempty"`
	// Finish is when it ends.
	Finish *Span `json:"finish,omitempty"`
}

// Moment is a predicted time with its interval.
type Moment struct {
	// Expected is the most likely time. The truth lies between Low and High in eight of ten cases.
	Expected time.Time `json:"expected"`
	Low      time.Time `json:"low"`
	High     time.Time `json:"high"`
}

// Predicted is a Forecast by the clock. All views show this.
type Predicted struct {
	// Start is when the job gets its devices; nil if it has them. Finish is when it ends.
	Start  *Moment `json:"start,omitempty"`
	Finish *Moment `json:"finish,omitempty"`
}

// Predicted returns when a job starts and ends by the plan.
func (p Plan) Predicted(job JobID) Predicted {
	if a, found := p.Find(job); found {
		return p.end(a)
	}
	for _, w := range p.Waiting {
		if w.Job == job {
			return p.wait(w)
		}
	}
	return Predicted{}
}

// Predictions returns Predicted for all jobs of the plan.
func (p Plan) Predictions() map[JobID]Predicted {
	all := make(map[JobID]Predicted, len(p.Waiting)+len(p.Allocations))
	for _, w := range p.Waiting {
		all[w.Job] = p.wait(w)
	}
	for _, a := range p.Allocations {
		all[a.Job] = p.end(a)
	}
	return all
}

func (p Plan) end(a Allocation) Predicted {
	return Predicted{Finish: p.moment(a.Forecast.Finish, a.RemainingSeconds)}
}

func (p Plan) wait(w Waiting) Predicted {
	return Predicted{Start: p.moment(w.Forecast.Start, w.StartInSeconds), Finish: p.moment(w.Forecast.Finish, 0)}
}

// moment is a span by the clock. Plans of older planners have only the expected time.
func (p Plan) moment(s *Span, expected float64) *Moment {
	if s == nil && expected <= 0 {
		return nil
	}
	if s == nil {
		s = &Span{Expected: expected, Low: expected, High: expected}
	}
	const century = 100 * 365 * 24 * 3600.0
	at := func(seconds float64) time.Time {
		return p.DecidedAt.Add(time.Duration(min(seconds, century) * float64(time.Second)))
	}
	return &Moment{Expected: at(s.Expected), Low: at(s.Low), High: at(s.High)}
}
