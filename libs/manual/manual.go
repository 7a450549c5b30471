// Package manual writes the reference of a command line as Markdown, from the same tree of commands that prints --help.
package manual

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/installation"
)

// Client writes the beginning of docs/cli.md: the flags of all commands, and the commands below root in their groups.
// Commands that another program reads are left out.
func Client(out io.Writer, root *cobra.Command) error {
	var text strings.Builder
	fmt.Fprintf(&text, `<!-- Generated from the commands of cmd/switchyard and cmd/switchyard-server. Run `+"`make generate`"+` after a change. -->
# Command line

For users and operators: every command of `+"`switchyard`"+`, as `+"`--help`"+` prints it, with these flags of all commands:
`)
	flags(&text, root.PersistentFlags())
	fmt.Fprintf(&text, "\n%s\n", markdown(root.Long))
	for _, group := range root.Groups() {
		fmt.Fprintf(&text, "\n## %s\n", strings.TrimSuffix(group.Title, ":"))
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID {
				section(&text, cmd)
			}
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// ServerTitle begins the part of docs/cli.md that Server writes.
const ServerTitle = "\n## Commands of the server\n"

// Server writes the end of docs/cli.md: the commands that switchyard passes to switchyard-server.
func Server(out io.Writer, root *cobra.Command) error {
	var text strings.Builder
	text.WriteString(ServerTitle)
	for _, cmd := range root.Commands() {
		section(&text, cmd)
	}
	_, err := io.WriteString(out, strings.ReplaceAll(text.String(), root.Name()+" ", "switchyard "))
	return err
}

// section writes a command and those below it.
func section(text *strings.Builder, cmd *cobra.Command) {
	if cmd.Hidden || cmd.DisableFlagParsing || cmd.Name() == "help" {
		return
	}
	if cmd.Runnable() {
		fmt.Fprintf(text, "\n### %s\n\n%s\n\n```\n%s\n```\n", cmd.CommandPath(), markdown(cmp.Or(cmd.Long, cmd.Short)), cmd.UseLine())
		if len(cmd.Aliases) > 0 {
			fmt.Fprintf(text, "\nAlso: %s.\n", strings.Join(cmd.Aliases, ", "))
		}
		flags(text, cmd.NonInheritedFlags())
		if cmd.Example != "" {
			fmt.Fprintf(text, "\n```sh\n%s\n```\n", strings.TrimRight(cmd.Example, "\n"))
		}
	}
	if cmd.Name() == "completion" {
		return // each of its commands explains a shell at length
	}
	for _, below := range cmd.Commands() {
		section(text, below)
	}
}

// flags writes a table of flags; of --help it says nothing.
func flags(text *strings.Builder, set *pflag.FlagSet) {
	var rows []string
	set.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || flag.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(flag)
		name := strings.TrimSpace("--" + flag.Name + " " + value)
		if flag.Shorthand != "" {
			name = "-" + flag.Shorthand + ", " + name
		}
		usage = cell(usage)
		if def := preset(flag); def != "" {
			usage += " (default `" + cell(def) + "`)"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", cell(name), usage))
	})
	if len(rows) > 0 {
		fmt.Fprintf(text, "\n| flag | sets |\n| --- | --- |\n%s", strings.Join(rows, ""))
	}
}

// preset returns a flag's default as it is on every machine, and nothing for lists, which hold folders of this one.
func preset(flag *pflag.Flag) string {
	isList := strings.HasPrefix(flag.DefValue, "[")
	if isList || slices.Contains([]string{"", "0", "false", "0s"}, flag.DefValue) {
		return ""
	}
	return strings.ReplaceAll(flag.DefValue, installation.DataDir(), "~/.local/state/switchyard")
}

// aligned finds lines in columns, which Markdown would fill as a paragraph.
var aligned = regexp.MustCompile(`(?m)^  |\S  +\S`)

// markdown keeps text from being read as HTML, and columns as they are.
func markdown(text string) string {
	paragraphs := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, paragraph := range paragraphs {
		if aligned.MatchString(paragraph) {
			paragraphs[i] = "```\n" + paragraph + "\n```"
		} else {
			paragraphs[i] = strings.ReplaceAll(paragraph, "<", `\<`)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", `\<`).Replace(text)
}
