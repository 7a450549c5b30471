package render

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Card says what became of a job that has ended: the last lines of its log. What is not known is nil or empty.
type Card struct {
	Job     train.Job
	Places  []train.Part
	Account *train.Account
	Report  *train.AttemptReport
	Folders *rpc.Folders
}

// Lines returns a label and a text for each line. Nothing is made up: without a tariff there is no cost, without a
// meter the energy is called modelled.
func (c Card) Lines() [][2]string {
	j := c.Job
	var lines [][2]string
	add := func(label, text string) {
		if text != "" {
			lines = append(lines, [2]string{label, text})
		}
	}
	if j.Attempt == 0 {
		return nil
	}
	if !j.SubmittedAt.IsZero() && !j.FinishedAt.IsZero() {
		add("waited", Duration(max(j.FinishedAt.Sub(j.SubmittedAt).Seconds()-j.RunSeconds, 0)))
	}
	add("ran", Duration(j.RunSeconds)+onDevices(c.Places)+Interruptions(j))
	if c.Account != nil {
		add("energy", EnergyWords(*c.Account))
		add("cost", costWords(*c.Account))
	}
	add("checkpoint", c.Checkpoint())
	if f := c.Folders; f != nil {
		add("files", EscapeText(cmp.Or(f.Work, f.Checkpoints)))
	}
	return lines
}

func onDevices(places []train.Part) string {
	switch {
	case len(places) == 1:
		return fmt.Sprintf(" on %s of node %s", places[0], places[0].Node)
	case len(places) > 1:
		return " on " + train.JoinPlaces(places)
	}
	return ""
}

// Checkpoint names the newest checkpoint by its path on the job's machine.
func (c Card) Checkpoint() string {
	r := c.Report
	if r == nil || !r.HasCheckpoint() {
		return ""
	}
	path := cmp.Or(r.Checkpoint, "saved")
	if c.Folders != nil {
		path = c.Folders.OnHost(path)
	}
	switch path = EscapeText(path); {
	case r.CheckpointStep > 0:
		return fmt.Sprintf("%s, after step %d of epoch %d", path, r.CheckpointStep, r.CheckpointEpochs+1)
	case r.FoundCheckpoint:
		return path
	}
	return fmt.Sprintf("%s, after epoch %d", path, r.CheckpointEpochs)
}

// EnergyWords says how much energy a job has used, and how that is known.
func EnergyWords(account train.Account) string {
	soFar := " so far"
	if account.Final {
		soFar = ""
	}
	how := "by " + strings.Join(account.Methods, " and ")
	if ModelledMark(account.Methods) != "" {
		how = "modelled from the use of the processor, not measured"
	}
	return fmt.Sprintf("%s%s, %s", EnergyOf(account), soFar, how)
}

// costWords prices the energy by the operator's tariff.
func costWords(account train.Account) string {
	var parts []string
	if account.Cost != nil {
		parts = append(parts, strings.TrimSpace(amount(*account.Cost)+" "+EscapeText(account.Currency)))
	}
	if account.CO2eGrams != nil {
		parts = append(parts, amount(*account.CO2eGrams)+" g of CO2e")
	}
	return strings.Join(parts, ", ")
}

func amount(v float64) string {
	const least = 0.01
	if v > 0 && v < least {
		return "less than 0.01"
	}
	return fmt.Sprintf("%.2f", v)
}

// Interruptions counts why a job has run in several attempts.
func Interruptions(j train.Job) string {
	var all []string
	for _, c := range []struct {
		times     int
		one, many string
	}{{j.Rescales, "rescale", "rescales"}, {j.Preemptions, "preemption", "preemptions"}, {j.Recoveries, "restart after a crash", "restarts after a crash"}, {j.Retries, "retry", "retries"}} {
		switch {
		case c.times == 1:
			all = append(all, "1 "+c.one)
		case c.times > 1:
			all = append(all, fmt.Sprintf("%d %s", c.times, c.many))
		}
	}
	switch {
	case len(all) > 0:
		return fmt.Sprintf(" in %s: %s", Plural(j.Attempt, "attempt"), strings.Join(all, ", "))
	case j.Attempt > 1:
		return fmt.Sprintf(" in %s", Plural(j.Attempt, "attempt"))
	}
	return " without interruption"
}
