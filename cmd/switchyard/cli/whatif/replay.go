package whatif

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

func replayCommand(a *console.Console) *cobra.Command {
	var bundle, policy string
	cmd := &cobra.Command{
		Use:   "replay [GENERATION]",
		Short: "Repeat a recorded decision, and compare the plans",
		Long: `The planner records the whole input of each plan that it publishes. This decides on it again (on that of the newest plan, or of a generation) and compares
the result with the published plan byte for byte; exit code 1 where they differ. With --policy it tells what another policy would have decided, and
the exit code is 0 whatever that is.`,
		Example: `  switchyard replay
  switchyard replay 42 --policy fifo
  switchyard replay 42 --bundle yesterday.tar.gz -o json`,
		Args:              cobra.MaximumNArgs(1),
		PersistentPreRunE: a.Accept("table", "text", "json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			generation := uint64(0)
			if len(args) > 0 {
				var err error
				if generation, err = strconv.ParseUint(args[0], 10, 64); err != nil || generation == 0 {
					return exit.Errorf(exit.Usage, "switchyard replay 42", "generation %q: want a number from 1 on", args[0])
				}
			}
			r, err := findReplay(a, cmd, generation, bundle)
			if err != nil {
				return err
			}
			return replay(a, r, policy)
		},
	}
	cmd.Flags().StringVar(&bundle, "bundle", "", "read the decision from this file instead of the bus")
	cmd.Flags().StringVar(&policy, "policy", "", "use this policy instead of the recorded one")
	return cmd
}

// replayed is a decision to make again. published is nil if the plan is no longer stored.
type replayed struct {
	input     decision.Input
	published []byte
}

func findReplay(a *console.Console, cmd *cobra.Command, generation uint64, bundle string) (replayed, error) {
	var r replayed
	if bundle != "" {
		h, err := readBundle(a, bundle, generation)
		if err != nil {
			return r, err
		}
		if h.Input == nil {
			return r, notRecorded(generation)
		}
		r.input = *h.Input
		if r.published, err = h.Published(r.input); errors.Is(err, bus.ErrNotFound) {
			err = nil
		}
		return r, err
	}
	err := a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
		ctx, cancel := context.WithTimeout(ctx, console.ListTimeout)
		defer cancel()
		var err error
		r.input, err = decision.ReadInput(ctx, b, generation)
		if errors.Is(err, bus.ErrNotFound) {
			return notRecorded(generation)
		}
		if err != nil {
			return err
		}
		if r.published, err = decision.PublishedPlan(ctx, b, r.input); errors.Is(err, bus.ErrNotFound) {
			return nil
		}
		return err
	})
	return r, err
}

func notRecorded(generation uint64) error {
	if generation == 0 {
		return exit.Errorf(exit.Failed, "the planner records one with each plan", "no decision is recorded")
	}
	return exit.Errorf(exit.Failed, "without a number the newest one is replayed", "the input of generation %d was not recorded, or is no longer stored", generation)
}

// replayResult is the result of replay.
type replayResult struct {
	Generation uint64 `json:"generation"`
	Policy     string `json:"policy"`
	// Decider names the code that decided, if it is not that of this program: then differences are to be expected.
	Decider string `json:"decider,omitempty"`
	// Replayed is the policy that decided again.
	Replayed    string       `json:"replayed_policy"`
	Jobs        int          `json:"jobs"`
	Identical   bool         `json:"identical"`
	Differences []difference `json:"differences,omitempty"`
	Published   *train.Plan  `json:"published,omitempty"`
	Plan        train.Plan   `json:"plan"`
}

func replay(a *console.Console, r replayed, other string) error {
	name := r.input.Policy
	if other != "" {
		name = other
	}
	policy, err := plan.Find(name)
	if err != nil {
		return exit.Errorf(exit.Usage, "policies of a live planner are "+strings.Join(plan.PolicyNames(), ", "), "%q: no such policy", name)
	}
	result := replayResult{Generation: r.input.Generation, Policy: r.input.Policy, Replayed: name, Jobs: len(r.input.State.Jobs), Plan: r.input.Decide(policy)}
	if !r.input.SameDecider() {
		result.Decider = cmp.Or(r.input.Decider, "before "+plan.Version)
	}
	again, err := decision.EncodePlan(result.Plan)
	if err != nil {
		return err
	}
	// What is published is shortened where it is long: only then are both alike.
	short, err := event.Decode[event.PlanDecided](again)
	if err != nil {
		return err
	}
	result.Plan = short.Plan
	if r.published != nil {
		decided, err := event.Decode[event.PlanDecided](r.published)
		if err != nil {
			return err
		}
		result.Published, result.Identical = &decided.Plan, bytes.Equal(again, r.published)
		if !result.Identical {
			result.Differences = planDifferences(decided.Plan, result.Plan)
		}
	}
	if err := writeReplay(a, result); err != nil {
		return err
	}
	switch {
	case other != "" || result.Identical:
		return nil
	case result.Published != nil && result.Decider != "":
		return exit.Errorf(exit.Failed, "exact replay holds for plans that this version decided",
			"deciding again on generation %d gives another plan: it was decided by other code (%s, this is %s)", result.Generation, result.Decider, plan.Version)
	case result.Published == nil:
		return exit.Errorf(exit.Failed, "", "the plan of generation %d is no longer stored: there is nothing to compare with", result.Generation)
	}
	return exit.Errorf(exit.Failed, "was it decided by another version of Switchyard?", "deciding again on generation %d gives another plan", result.Generation)
}

func writeReplay(a *console.Console, r replayResult) error {
	if a.Output == "json" {
		return a.PrintJSON(r)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "generation %d, by %s: %s\n", r.Generation, render.EscapeText(r.Policy), render.Plural(r.Jobs, "job"))
	if r.Decider != "" {
		fmt.Fprintf(&text, "decided by other code (%s, this is %s): differences are to be expected\n", render.EscapeText(r.Decider), plan.Version)
	}
	switch {
	case r.Identical && r.Replayed == r.Policy:
		text.WriteString("identical\n")
	case r.Published == nil:
		fmt.Fprintf(&text, "%s decides; the published plan is no longer stored:\n", r.Replayed)
		for _, d := range planDifferences(train.Plan{}, r.Plan) {
			fmt.Fprintf(&text, "  %s %s\n", render.EscapeText(string(d.Job)), render.EscapeText(d.Now))
		}
	default:
		fmt.Fprintf(&text, "%s decides:\n", r.Replayed)
		for _, d := range r.Differences {
			fmt.Fprintf(&text, "  %s\n", render.EscapeText(d.String()))
		}
		if len(r.Differences) == 0 {
			text.WriteString("  the same devices for every job\n")
		}
	}
	_, err := fmt.Fprint(a.Stdout, text.String())
	return err
}
