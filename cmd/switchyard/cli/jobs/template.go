package jobs

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/examples/templates"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/template"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func renderCommand(a *console.Console) *cobra.Command {
	var set []string
	var list bool
	cmd := &cobra.Command{
		Use:   "render FILE|NAME [--set NAME=VALUE ..]",
		Short: "Make a job file from a template",
		Long: `Makes a job file from one of the templates that come with Switchyard, or from a file of your own, and prints it for ` + "`switchyard submit -`" + `. Settings
are checked before anything is rendered, and what comes out is checked as a submission is. --list shows the templates and, with a name, its parameters. -o is yaml or json.`,
		Example: `  switchyard render --list pytorch
  switchyard render pytorch --set name=mnist --set code=$PWD --set batch_size=64 --set training_set_size=60000 --set epochs=5 | switchyard submit -`,
		Args:              cobra.MaximumNArgs(1),
		PersistentPreRunE: a.Accept("table", "yaml", "json"),
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case list && len(args) == 0:
				return listTemplates(a)
			case len(args) == 0:
				return exit.Errorf(exit.Usage, "`switchyard render --list` shows the names", "want the name of a template or a file")
			case list:
				return listParameters(a, args[0])
			}
			job, err := RenderJob(a, args[0], set)
			if err != nil {
				return err
			}
			if a.Output == "json" {
				spec, err := DecodeSpec(args[0], job)
				if err != nil {
					return err
				}
				return a.PrintJSON(spec)
			}
			_, err = a.Stdout.Write(job)
			return err
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "show the templates, or the parameters of one")
	SettingsFlag(cmd.Flags(), &set)
	return cmd
}

func SettingsFlag(fs *pflag.FlagSet, set *[]string) {
	fs.StringArrayVar(set, "set", nil, "NAME=VALUE for a parameter of the template (repeatable)")
}

// findTemplate reads a template by its name, or from a file.
func findTemplate(a *console.Console, name string) (*template.Template, error) {
	text, err := templates.Files.ReadFile(name + ".yaml")
	if err != nil {
		text, err = ReadJobFile(a, name)
	}
	if err != nil {
		near := train.NearMiss(name, templateNames())
		if near == "" || strings.ContainsAny(name, "/.") {
			return nil, err
		}
		return nil, exit.Errorf(exit.Usage, "did you mean "+near+"?", "%s: neither a file nor one of the templates %s", name, strings.Join(templateNames(), ", "))
	}
	t, problems := template.Parse(text)
	return t, problem(name, problems)
}

// problem joins all problems of a template into one error. It returns nil if the template has none.
func problem(name string, problems strict.Problems) error {
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return exit.Usagef("template %s:\n  %s", name, strings.Join(lines, "\n  "))
}

// RenderJob makes a job file and checks that it is a valid submission.
func RenderJob(a *console.Console, name string, set []string) ([]byte, error) {
	t, err := findTemplate(a, name)
	if err != nil {
		return nil, err
	}
	values, problems := t.Settings(set)
	if err := problem(name, problems); err != nil {
		return nil, err
	}
	job, problems := t.Render(values)
	if err := problem(name, problems); err != nil {
		return nil, err
	}
	_, err = DecodeSpec("the job from template "+name, job)
	return job, err
}

func templateNames() []string {
	files, _ := fs.Glob(templates.Files, "*.yaml") // the pattern is sound
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	return slices.Sorted(slices.Values(files))
}

// templateRow is a template that comes with Switchyard.
type templateRow struct {
	Name        string               `json:"name"`
	Description string               `json:"description"`
	Parameters  []template.Parameter `json:"parameters"`
}

func listTemplates(a *console.Console) error {
	rows := []templateRow{}
	for _, name := range templateNames() {
		t, err := findTemplate(a, name)
		if err != nil {
			return err
		}
		rows = append(rows, templateRow{name, t.Description, t.Parameters})
	}
	return a.Show(rows, "TEMPLATE\tWHAT IT DOES", func(w io.Writer) {
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\n", r.Name, r.Description)
		}
	})
}

func listParameters(a *console.Console, name string) error {
	t, err := findTemplate(a, name)
	if err != nil {
		return err
	}
	return a.Show(templateRow{name, t.Description, t.Parameters}, "PARAMETER\tTYPE\tDEFAULT\tWHAT IT IS", func(w io.Writer) {
		for _, p := range t.Parameters {
			value := "-"
			switch {
			case p.Required:
				value = "required"
			case p.Default != nil:
				value = fmt.Sprint(p.Default)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", render.Cell(p.Name, 40), p.Type, render.Cell(value, 40), render.Cell(p.Doc, 160))
		}
	})
}
