package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

func (a *app) replayCommand() *cobra.Command {
	var bundle, policy string
	cmd := &cobra.Command{
		Use:   "replay [GENERATION]",
		Short: "Decide again on what a plan was decided on, and compare",
		Long: `The planner records the whole input of each plan that it publishes. This decides on it again (on that of the newest plan, or of a generation) and compares
the result with the published plan byte for byte; exit code 1 where they differ. With --policy it tells what another policy would have decided, and
the exit code is 0 whatever that is.`,
		Example: `  switchyard replay
  switchyard replay 42 --policy fifo
  switchyard replay 42 --bundle yesterday.tar.gz -o json`,
		Args: cobra.MaximumNArgs(1),
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains([]string{"table", "text", "json"}, a.output) {
				return failure(ExitUsage, "", "-o %q: want text or json", a.output)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			generation := uint64(0)
			if len(args) > 0 {
				var err error
				if generation, err = strconv.ParseUint(args[0], 10, 64); err != nil || generation == 0 {
					return failure(ExitUsage, "switchyard replay 42", "generation %q: want a number from 1 on", args[0])
				}
			}
			r, err := a.findReplay(cmd, generation, bundle)
			if err != nil {
				return err
			}
			return a.replay(r, policy)
		},
	}
	cmd.Flags().StringVar(&bundle, "bundle", "", "read it from this file instead of the bus")
	cmd.Flags().StringVar(&policy, "policy", "", "decide by this policy instead of the one that decided")
	return cmd
}

// replayed is a decision to be made again. Published is nil where the plan is not kept any more.
type replayed struct {
	input     planner.Input
	published []byte
}

func (a *app) findReplay(cmd *cobra.Command, generation uint64, bundle string) (replayed, error) {
	var r replayed
	if bundle != "" {
		h, err := a.readBundle(bundle, generation)
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
	err := a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		var err error
		r.input, err = planner.ReadInput(ctx, b, generation)
		if errors.Is(err, bus.ErrNotFound) {
			return notRecorded(generation)
		}
		if err != nil {
			return err
		}
		if r.published, err = planner.PublishedPlan(ctx, b, r.input); errors.Is(err, bus.ErrNotFound) {
			return nil
		}
		return err
	})
	return r, err
}

func notRecorded(generation uint64) error {
	if generation == 0 {
		return failure(ExitError, "the planner records one with each plan", "no decision is recorded")
	}
	return failure(ExitError, "without a number the newest one is replayed", "what generation %d was decided on is not recorded, or not kept any more", generation)
}

// replayResult is what replay tells.
type replayResult struct {
	Generation uint64 `json:"generation"`
	Policy     string `json:"policy"`
	// Replayed is the policy that decided again.
	Replayed    string       `json:"replayed_policy"`
	Jobs        int          `json:"jobs"`
	Identical   bool         `json:"identical"`
	Differences []difference `json:"differences,omitempty"`
	Published   *train.Plan  `json:"published,omitempty"`
	Plan        train.Plan   `json:"plan"`
}

func (a *app) replay(r replayed, other string) error {
	name := r.input.Policy
	if other != "" {
		name = other
	}
	policy, err := plan.Find(name)
	if err != nil {
		return failure(ExitUsage, "policies of a live planner are "+strings.Join(plan.PolicyNames(), ", "), "%q: no such policy", name)
	}
	result := replayResult{Generation: r.input.Generation, Policy: r.input.Policy, Replayed: name, Jobs: len(r.input.State.Jobs), Plan: r.input.Decide(policy)}
	again, err := planner.EncodePlan(result.Plan)
	if err != nil {
		return runtime(err)
	}
	// What is published is shortened where it is long: only then are both alike.
	short, err := event.Decode[event.PlanDecided](again)
	if err != nil {
		return runtime(err)
	}
	result.Plan = short.Plan
	if r.published != nil {
		decided, err := event.Decode[event.PlanDecided](r.published)
		if err != nil {
			return runtime(err)
		}
		result.Published, result.Identical = &decided.Plan, bytes.Equal(again, r.published)
		if !result.Identical {
			result.Differences = planDifferences(decided.Plan, result.Plan)
		}
	}
	if err := a.writeReplay(result); err != nil {
		return err
	}
	switch {
	case other != "" || result.Identical:
		return nil
	case result.Published == nil:
		return failure(ExitError, "", "the plan of generation %d is not kept any more: nothing to compare with", result.Generation)
	}
	return failure(ExitError, "was it decided by another version of Switchyard?", "deciding again on generation %d gives another plan", result.Generation)
}

func (a *app) writeReplay(r replayResult) error {
	if a.output == "json" {
		return a.printJSON(r)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "generation %d, by %s: %s\n", r.Generation, escapeText(r.Policy), plural(r.Jobs, "job"))
	switch {
	case r.Identical && r.Replayed == r.Policy:
		text.WriteString("identical\n")
	case r.Published == nil:
		fmt.Fprintf(&text, "%s decides, and the plan of then is gone:\n", r.Replayed)
		for _, d := range planDifferences(train.Plan{}, r.Plan) {
			fmt.Fprintf(&text, "  %s %s\n", escapeText(string(d.Job)), escapeText(d.Now))
		}
	default:
		fmt.Fprintf(&text, "%s decides:\n", r.Replayed)
		for _, d := range r.Differences {
			fmt.Fprintf(&text, "  %s\n", escapeText(d.String()))
		}
		if len(r.Differences) == 0 {
			text.WriteString("  the same devices for everybody\n")
		}
	}
	_, err := fmt.Fprint(a.stdout, text.String())
	return runtime(err)
}
