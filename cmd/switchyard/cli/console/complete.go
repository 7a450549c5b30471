package console

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// completionTime is how long a person waits after the Tab key at most.
const completionTime = 500 * time.Millisecond

// Completer makes the words that may follow what is typed.
type Completer = cobra.CompletionFunc

// complete asks the service web. If that is away, it suggests nothing.
func (a *Console) complete(words func(ctx context.Context, y Yard, given []string, begun string) []cobra.Completion) Completer {
	return func(cmd *cobra.Command, given []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const nothingElse = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		y, err := a.findWeb(ctx)
		if err != nil {
			return nil, nothingElse
		}
		return begin(words(ctx, y, given, begun), begun), nothingElse
	}
}

// begin keeps the words with a beginning, each once.
func begin(words []cobra.Completion, begun string) []cobra.Completion {
	seen := map[string]bool{}
	return slices.DeleteFunc(words, func(word cobra.Completion) bool {
		plain, _, _ := strings.Cut(word, "\t")
		again := seen[plain]
		seen[plain] = true
		return again || plain == "" || !strings.HasPrefix(plain, begun)
	})
}

// completed is the number of jobs that are suggested.
const completed = 200

// CompleteJobs completes ids and names of this user's jobs, the newest first; those of all users if none of
// these fits.
func (a *Console) CompleteJobs() Completer {
	return a.complete(func(ctx context.Context, y Yard, given []string, begun string) []cobra.Completion {
		for _, user := range []string{installation.CurrentUser(), ""} {
			page, err := y.Jobs(ctx, view.Query{User: user, Newest: completed, NoRejected: true})
			if err != nil {
				return nil
			}
			page.Jobs = slices.DeleteFunc(page.Jobs, func(j view.Job) bool { return slices.Contains(given, string(j.ID)) })
			words := of(page.Jobs, func(j view.Job) []string {
				return []string{string(j.ID) + "\t" + render.EscapeText(j.Name) + ", " + string(j.State)}
			})
			words = append(words, of(page.Jobs, func(j view.Job) []string { return plain(j.Name) })...)
			if len(begin(slices.Clone(words), begun)) > 0 {
				return words
			}
		}
		return nil
	})
}

// CompleteProperty completes a property of the newest jobs.
func (a *Console) CompleteProperty(property func(view.Job) []string) Completer {
	return a.complete(func(ctx context.Context, y Yard, _ []string, _ string) []cobra.Completion {
		page, err := y.Jobs(ctx, view.Query{Newest: 5 * completed})
		if err != nil {
			return nil
		}
		words := of(page.Jobs, property)
		slices.Sort(words)
		return words
	})
}

func of(jobs []view.Job, words func(view.Job) []string) []cobra.Completion {
	var all []cobra.Completion
	for _, j := range jobs {
		all = append(all, words(j)...)
	}
	return all
}

// plain leaves out words that a shell would not take as they are.
func plain(word string) []string {
	if word == "" || strings.ContainsFunc(word, func(r rune) bool { return !strings.ContainsRune("-_.:/@+=,", r) && !isAlphanumeric(r) }) {
		return nil
	}
	return []string{word}
}

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// CompleteNodes completes ids of nodes.
func (a *Console) CompleteNodes() Completer {
	return a.complete(func(ctx context.Context, y Yard, _ []string, _ string) []cobra.Completion {
		nodes, err := y.Nodes(ctx)
		if err != nil {
			return nil
		}
		var ids []cobra.Completion
		for _, n := range nodes {
			ids = append(ids, string(n.ID))
		}
		return ids
	})
}

// completeLists completes what cobra knows only by name: the arguments JOB and NODE, and the flags by which jobs are
// chosen.
func (a *Console) completeLists(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.completeLists(sub)
	}
	_, args, _ := strings.Cut(cmd.Use, " ")
	switch {
	case cmd.ValidArgsFunction != nil:
	case strings.HasPrefix(args, "JOB.."):
		cmd.ValidArgsFunction = a.CompleteJobs()
	case strings.HasPrefix(args, "JOB"):
		cmd.ValidArgsFunction = first(a.CompleteJobs())
	case strings.HasPrefix(args, "NODE"):
		cmd.ValidArgsFunction = a.CompleteNodes()
	}
	for flag, completer := range map[string]Completer{
		"state":   cobra.FixedCompletions(api.StateNames(), cobra.ShellCompDirectiveNoFileComp),
		"user":    a.CompleteProperty(func(j view.Job) []string { return plain(j.User) }),
		"project": a.CompleteProperty(func(j view.Job) []string { return plain(j.Project) }),
		"label":   a.CompleteProperty(Labels),
		"node":    a.CompleteNodes(),
		"after":   a.CompleteJobs(),
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, completer) // it exists, and keeps a completion of its own
		}
	}
}

// first completes the first argument only.
func first(c Completer) Completer {
	return func(cmd *cobra.Command, given []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return c(cmd, given, begun)
	}
}

// Labels returns the labels of a job as KEY=VALUE.
func Labels(j view.Job) []string {
	var all []string
	for key, value := range j.Labels {
		all = append(all, train.JoinLabels(map[string]string{key: value}))
	}
	return all
}
