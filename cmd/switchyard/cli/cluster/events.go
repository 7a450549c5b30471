// Package cluster holds the commands about the whole installation: events, nodes, top and version.
package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/audit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/render"
)

// Commands returns top, events, node and version.
func Commands() []console.Command {
	return []console.Command{topCommand, eventsCommand, nodeCommand, versionCommand}
}

func eventsCommand(a *console.Console) *cobra.Command {
	var poison, samples, all, once, audited bool
	var job, user string
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print each fact as the bus stores it",
		Example: `  switchyard events                   follow jobs, plans and accounts
  switchyard events --all --once      print what is stored, then stop
  switchyard events --poison          what could not be handled, with the reason
  switchyard events --job resnet-x1 -o json
  switchyard events --audit --user ann --since 24h   who asked for what, and what became of it`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since < 0 {
				return exit.Errorf(exit.Usage, "switchyard events --audit --since 24h", "--since %s: want a time that has passed", since)
			}
			if audited {
				f := audit.Filter{User: user, Job: job}
				if since > 0 {
					f.From = time.Now().Add(-since)
				}
				return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return showAudit(ctx, a, y, f) })
			}
			if user != "" || since > 0 {
				return exit.Usagef("--user and --since belong to --audit")
			}
			streams := []string{event.StreamJobs, event.StreamPlans, event.StreamEnergy, event.StreamNet, event.StreamNodes}
			switch {
			case poison:
				streams, all, once = []string{event.StreamPoison}, true, true
			case samples:
				streams = append(streams, event.StreamSamples)
			}
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error { return Follow(ctx, a, b, streams, all, once, job) })
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&poison, "poison", false, "print rejected messages with the reason, and stop")
	fs.BoolVar(&samples, "samples", false, "include heartbeats and meters")
	fs.BoolVar(&all, "all", false, "begin with the oldest stored fact")
	fs.BoolVar(&once, "once", false, "stop at the newest stored fact")
	fs.StringVar(&job, "job", "", "only the facts of this job")
	fs.BoolVar(&audited, "audit", false, "print who asked for what, by which door, and what became of it, and stop")
	fs.StringVar(&user, "user", "", "with --audit: only what this person asked for")
	fs.DurationVar(&since, "since", 0, "with --audit: only what was asked in this time, e.g. 24h")
	return cmd
}

// Follow prints streams side by side, each in its own order; what is stored already in the order of time. It ends at
// the first message that cannot be written.
func Follow(ctx context.Context, a *console.Console, b *bus.Bus, streams []string, all, once bool, job string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var printing sync.Mutex
	var stored []bus.Message
	var unwritten error
	write := func(m bus.Message) {
		if unwritten == nil {
			unwritten = printMessage(a, m)
		}
		if unwritten != nil {
			stop()
		}
	}
	show := func(m bus.Message) {
		if job != "" && m.Parsed.ID != job {
			return
		}
		printing.Lock()
		defer printing.Unlock()
		if once {
			stored = append(stored, m)
			return
		}
		write(m)
	}
	reading := pool.New().WithErrors().WithContext(ctx)
	for _, stream := range streams {
		reading.Go(func(ctx context.Context) error { return readStream(ctx, b, stream, all, once, show) })
	}
	err := reading.Wait()
	slices.SortStableFunc(stored, func(x, y bus.Message) int { return x.Time.Compare(y.Time) })
	for _, m := range stored {
		write(m)
	}
	return cmp.Or(unwritten, err)
}

func readStream(ctx context.Context, b *bus.Bus, stream string, all, once bool, show func(bus.Message)) error {
	last, err := b.LastSequence(ctx, stream)
	if err != nil || once && last == 0 {
		return err
	}
	own, stop := context.WithCancel(ctx)
	defer stop()
	from := uint64(0)
	if all || once {
		from = 1
	}
	return b.Follow(own, stream, nil, from, func(m bus.Message) {
		show(m)
		if once && m.Sequence >= last {
			stop()
		}
	})
}

func printMessage(a *console.Console, m bus.Message) error {
	if a.Output == "json" {
		body := json.RawMessage(m.Data)
		if !json.Valid(body) {
			body, _ = json.Marshal(string(m.Data)) // a string always encodes
		}
		line, err := json.Marshal(map[string]any{
			"subject": m.Subject, "sequence": m.Sequence, "time": m.Time, "source": m.Source, "key": m.Key, "cause": m.Cause, "body": body,
		})
		if err == nil {
			_, err = fmt.Fprintf(a.Stdout, "%s\n", line)
		}
		return err
	}
	const width = 300
	body := render.EscapeText(string(m.Data[:min(len(m.Data), width)]))
	if len(m.Data) > width {
		body += fmt.Sprintf(" .. (%d bytes)", len(m.Data))
	}
	_, err := fmt.Fprintf(a.Stdout, "%s %-9s %s %s\n", m.Time.Local().Format("15:04:05.000"), m.Source, strings.TrimPrefix(m.Subject, "yard."), body)
	return err
}
