package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func versionCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program and of the services that answer",
		Long: `Shows the version of this program, the versions of the facts and records that it speaks, the same of each service of which one process works
at a time, and the versions of the nodes' agents. Executors do not tell theirs. Without a bus it shows only the first.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: build.This(), Bus: a.URL(), Services: map[string]contract.Build{}, Agents: map[string][]train.NodeID{}}
			err := a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error { return v.ask(ctx, b) })
			// A person without a key of the bus knows one service, through which all he asks goes.
			if web, answers := a.Web(cmd.Context()); answers && !errors.Is(err, build.ErrOther) {
				if err != nil {
					v.Bus = web.Bus
				}
				v.Services["web"], err = web.Build, nil
			}
			if err != nil {
				v.Trouble = err.Error()
			}
			if a.Output == "json" {
				return a.PrintJSON(v)
			}
			v.write(a.Stdout)
			return nil
		},
	}
}

// versions are the programs of an installation.
type versions struct {
	Client contract.Build `json:"client"`
	// Bus is the address that was asked, Trouble why it did not answer.
	Bus      string                    `json:"bus"`
	Trouble  string                    `json:"trouble,omitempty"`
	Services map[string]contract.Build `json:"services"`
	// Agents are the nodes whose agents have a version.
	Agents map[string][]train.NodeID `json:"agents"`
}

// ask reads who holds the leases of the services, and what the agents say of themselves.
func (v *versions) ask(ctx context.Context, b *bus.Bus) error {
	leases, err := console.MapBucket(ctx, b, contract.Leases)
	for task, lease := range leases {
		if lease.Build == nil {
			lease.Build = &contract.Build{Version: "older than versions"}
		}
		v.Services[task] = *lease.Build
	}
	nodes, nodesErr := console.MapBucket(ctx, b, contract.Nodes)
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		version := cmp.Or(nodes[id].Version, "older than versions")
		v.Agents[version] = append(v.Agents[version], nodes[id].ID)
	}
	return errors.Join(err, nodesErr)
}

func (v *versions) write(w io.Writer) {
	fmt.Fprintf(w, "switchyard  %s\n", buildWords(v.Client))
	if v.Trouble != "" {
		fmt.Fprintf(w, "services    %s\n", strings.ReplaceAll(render.EscapeLines(v.Trouble), "\n", "\n            "))
		return
	}
	tasks, builds := map[contract.Build][]string{}, []contract.Build{}
	for _, task := range slices.Sorted(maps.Keys(v.Services)) {
		of := v.Services[task]
		if tasks[of] == nil {
			builds = append(builds, of)
		}
		tasks[of] = append(tasks[of], render.EscapeText(task))
	}
	fmt.Fprintf(w, "services    %d at %s\n", len(v.Services), v.Bus)
	for _, of := range builds {
		fmt.Fprintf(w, "            %s: %s\n", buildWords(of), strings.Join(tasks[of], ", "))
	}
	for _, version := range slices.Sorted(maps.Keys(v.Agents)) {
		fmt.Fprintf(w, "agents      %s: %d, among them that of node %s\n", render.EscapeText(version), len(v.Agents[version]), render.EscapeText(string(v.Agents[version][0])))
	}
}

// buildWords names a program in one line.
func buildWords(b contract.Build) string {
	words := render.EscapeText(b.Version)
	const short = 12
	if c := b.Commit; c != "" && !strings.Contains(b.Version, c[:min(short, len(c))]) {
		words += ", commit " + render.EscapeText(c[:min(short, len(c))])
		if b.Modified {
			words += " with changes"
		}
	}
	if day, _, dated := strings.Cut(b.CommittedAt, "T"); dated {
		words += ", committed " + render.EscapeText(day)
	}
	if b.Events > 0 {
		words += fmt.Sprintf(", facts v%d, records v%d", b.Events, b.Records)
	}
	if b.Go != "" {
		words += ", " + render.EscapeText(b.Go)
	}
	if b.Platform != "" {
		words += ", " + render.EscapeText(b.Platform)
	}
	return words
}
