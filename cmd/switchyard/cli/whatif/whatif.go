package whatif

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
	"github.com/switchyard-dl/switchyard/services/planner/simrun"
	"github.com/switchyard-dl/switchyard/services/planner/whatif"
)

// patience bounds the wait for an answer: the planner simulates for at most a minute, and answers one question after
// the other.
const patience = 2 * time.Minute

// whatIf asks the planner, or simulates a bundle here, and prints the answer.
func whatIf(a *console.Console, cmd *cobra.Command, o simulateOptions) error {
	question, err := o.question(cmd)
	if err != nil {
		return err
	}
	answer, err := o.answer(a, cmd, question)
	if err != nil {
		return err
	}
	if o.timeline != "" {
		if err := os.WriteFile(o.timeline, []byte(answer.Timeline), 0o644); err != nil {
			return fmt.Errorf("write timeline: %w", err)
		}
	}
	return writeWhatIf(a, answer)
}

// question is what the flags ask.
func (o *simulateOptions) question(cmd *cobra.Command) (whatif.Question, error) {
	q := whatif.Question{
		SinceSeconds: o.since.Seconds(), Clusters: o.clusters, AddNodes: o.addNodes, Like: o.like, Policies: o.policies, Timeline: o.timeline != "",
	}
	flags := cmd.Flags()
	if flags.Changed("interval") {
		if q.IntervalSeconds = o.interval.Seconds(); q.IntervalSeconds == 0 {
			return q, exit.Usagef("--interval %s: want 50ms or more", o.interval)
		}
	}
	if flags.Changed("seed") {
		q.Seed = &o.seed
	}
	if flags.Changed("quota") {
		q.Quotas = o.quotas
	}
	if flags.Changed("power-budget-watts") {
		q.PowerBudgetWatts = &o.powerBudget
	}
	return q, nil
}

func (o *simulateOptions) answer(a *console.Console, cmd *cobra.Command, q whatif.Question) (answer whatif.Answer, err error) {
	if o.bundle == "" {
		err = a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
			answer, err = ask(ctx, b, q)
			return err
		})
		for _, text := range answer.Unreadable {
			fmt.Fprintf(a.Stderr, "passed over: %s\n", text)
		}
		return answer, err
	}
	if o.fromBus || o.since != 0 {
		return answer, exit.Usagef("--bundle goes without --from-bus and --since")
	}
	return answerBundle(cmd.Context(), a, o.bundle, q)
}

// ask asks the planner.
func ask(ctx context.Context, b *bus.Bus, q whatif.Question) (whatif.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := bus.Ask[whatif.Question, whatif.Answer](ctx, b, whatif.Subject, q)
	switch {
	case errors.Is(err, bus.ErrAway):
		return answer, exit.Errorf(exit.Unreachable, "start the services: `switchyard up`; a file of `switchyard bundle` needs none: --bundle FILE", "no planner answers on the bus at %s", b.URL())
	case errors.Is(err, context.DeadlineExceeded):
		return answer, exit.Errorf(exit.Failed, "ask again later, or simulate a file of `switchyard bundle`: --bundle FILE", "the planner has not answered within %s: it may have other questions to answer", patience)
	case err != nil:
		return answer, err
	case answer.Refusal != nil:
		return answer, refused(answer.Refusal)
	}
	return answer, nil
}

// answerBundle answers a question from a bundle, by the functions that the planner uses.
func answerBundle(ctx context.Context, a *console.Console, path string, q whatif.Question) (answer whatif.Answer, err error) {
	h, err := readBundle(a, path, 0)
	if err != nil {
		return answer, err
	}
	live, err := h.Live()
	if err != nil {
		return answer, err
	}
	simulations, err := q.Plan(live)
	if err != nil {
		return answer, refused(err)
	}
	runs, err := simrun.All(ctx, simulations, SimulationBar(a))
	if err != nil {
		return answer, err
	}
	results := make([]sim.Result, len(runs))
	for i, r := range runs {
		results[i] = r.Result
	}
	answer = whatif.NewAnswer(live, simulations, results)
	if q.Timeline {
		answer.Timeline, err = simrun.Timeline(runs)
	}
	return answer, err
}

// refused is a refusal with its exit code.
func refused(err error) error {
	var r *whatif.Refusal
	if !errors.As(err, &r) {
		return err
	}
	code := exit.Failed
	if r.Usage {
		code = exit.Usage
	}
	return exit.Errorf(code, r.Fix, "%s", r.Message)
}
