package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// dryRunTimeout bounds the wait for admission and the planner.
const dryRunTimeout = time.Minute

// rehearsal is what admission and the planner would make of a job that is not submitted.
type rehearsal struct {
	SubmitResult
	// Spec is what would be admitted, with its defaults.
	Spec   train.Spec     `json:"spec"`
	Plan   *rpc.Outlook   `json:"plan,omitempty"`
	Energy *energyOutlook `json:"energy,omitempty"`
}

// energyOutlook is the energy of a run, and what it costs by the current tariff.
type energyOutlook struct {
	rpc.EnergyOutlook
	Price    *float64 `json:"price,omitempty"`
	GramsCO2 *float64 `json:"grams_co2,omitempty"`
}

// dryRun shows what admission and the planner would make of a job. Nothing is published.
func dryRun(ctx context.Context, a *console.Console, y console.Yard, spec train.Spec, id train.JobID) error {
	ctx, cancel := context.WithTimeout(ctx, dryRunTimeout)
	defer cancel()
	if err := findNamed(ctx, y, &spec); err != nil {
		return err
	}
	body, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode the job: %w", err)
	}
	told, err := y.Rehearse(ctx, rpc.Candidate{ID: id, Spec: body})
	if err != nil {
		return err
	}
	job := told.Job
	r := rehearsal{SubmitResult: SubmitResult{ID: id, State: job.State, Reasons: job.Blockers, Message: job.Message}, Spec: job.Spec, Plan: told.Plan}
	if refused := refusal(job); refused != nil {
		if a.Output == "json" {
			return errors.Join(a.PrintJSON(r), refused)
		}
		return refused
	}
	now := time.Now()
	r.Predicted = r.Plan.Predicted
	if spent := r.Plan.Energy; spent != nil {
		r.Energy = &energyOutlook{EnergyOutlook: *spent}
		r.Energy.cost(told.Rates, now)
	}
	if a.Output == "json" {
		return a.PrintJSON(r)
	}
	return r.write(a.Stdout, now)
}

// cost adds what the energy costs by the rate that holds now, if there is a tariff.
func (e *energyOutlook) cost(rates train.EnergyRates, now time.Time) {
	rate, known := rates.At(now)
	if !known {
		return
	}
	kWh := e.Joules / unit.KilowattHour.Joules()
	if price := kWh * rate.PricePerKWh; price > 0 {
		e.Price = &price
	}
	if grams := kWh * rate.GramsPerKWh; grams > 0 {
		e.GramsCO2 = &grams
	}
}

func (r rehearsal) write(w io.Writer, now time.Time) error {
	line := func(label, format string, args ...any) {
		fmt.Fprintf(w, "  %-9s %s\n", label, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(w, "job %s would be admitted\n", r.ID)
	if a := r.Plan.Allocation; a != nil {
		for i, p := range a.Places() {
			line([]string{"starts", ""}[min(i, 1)], "at once on %s of %s", train.JoinDevices(p.Devices), p.Node)
		}
	}
	if waits := r.Plan.Waiting; waits != nil {
		start := "nobody knows when"
		if at := r.Predicted.Start; at != nil {
			start = "in " + render.In(*at, now)
		}
		line("starts", "%s", start)
		for i, why := range waits.Blockers {
			line([]string{"waits", ""}[min(i, 1)], "%s", render.EscapeText(why.String()))
		}
		if len(r.Plan.Before) > 0 {
			line("behind", "%s in the queue", few(r.Plan.Before))
		}
		if len(r.Plan.Holders) > 0 {
			line("devices", "held by %s", few(r.Plan.Holders))
		}
	}
	ends := "unknown: nothing like it has run here, and it says too little about itself"
	if at := r.Predicted.Finish; at != nil {
		ends = "in " + render.In(*at, now)
	}
	line("ends", "%s", ends)
	if e := r.Energy; e != nil {
		line("energy", "up to %s (%s to %s), modelled: %.3g W while it runs", unit.Joules(e.Joules), unit.Joules(e.LowJoules), unit.Joules(e.HighJoules), r.Plan.PowerWatts)
		if e.Price != nil {
			line("cost", "%.4g by the rate of now", *e.Price)
		}
		if e.GramsCO2 != nil {
			line("CO2", "%.4g g by the rate of now", *e.GramsCO2)
		}
	}
	if len(r.Plan.Starts) > 0 {
		line("others", "%s would start now, too", few(r.Plan.Starts))
	}
	for _, m := range r.Plan.Moved {
		to := "would leave its devices"
		if len(m.Places) > 0 {
			to = "would go on with " + train.JoinDevices(train.AllDevices(m.Places))
		}
		line("others", "%s %s: %s", m.Job, to, render.EscapeText(m.Reason.Message))
	}
	_, err := fmt.Fprintln(w, "nothing was submitted")
	return err
}

// few names some jobs, and counts the others.
func few(ids []train.JobID) string {
	const shown = 5
	var names []string
	for _, id := range ids[:min(len(ids), shown)] {
		names = append(names, string(id))
	}
	if more := len(ids) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
