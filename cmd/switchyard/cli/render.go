package cli

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/template"
	"github.com/switchyard-dl/switchyard/examples/templates"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func (a *app) renderCommand() *cobra.Command {
	var set []string
	var list bool
	cmd := &cobra.Command{
		Use:   "render FILE|NAME [--set NAME=VALUE ..]",
		Short: "Make a job file from a template",
		Long: `Makes a job file from one of the templates that come with Switchyard, or from a file of your own, and prints it for ` + "`switchyard submit -`" + `. Settings
are checked before anything is rendered, and what comes out is checked as a submission is. --list shows the templates and, with a name, its parameters. -o is yaml or json.`,
		Example: `  switchyard render --list pytorch
  switchyard render pytorch --set name=mnist --set code=$PWD --set batch_size=64 --set training_set_size=60000 --set epochs=5 | switchyard submit -`,
		Args: cobra.MaximumNArgs(1),
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains([]string{"table", "yaml", "json"}, a.output) {
				return failure(ExitUsage, "", "-o %q: want yaml or json", a.output)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case list && len(args) == 0:
				return a.listTemplates()
			case len(args) == 0:
				return failure(ExitUsage, "`switchyard render --list` shows the names", "want the name of a template or a file")
			case list:
				return a.listParameters(args[0])
			}
			job, err := a.renderJob(args[0], set)
			if err != nil {
				return err
			}
			if a.output == "json" {
				spec, err := decodeSpec(args[0], job)
				if err != nil {
					return err
				}
				return a.printJSON(spec)
			}
			_, err = a.stdout.Write(job)
			return runtime(err)
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "show the templates, or the parameters of one")
	settingsFlag(cmd.Flags(), &set)
	return cmd
}

func settingsFlag(fs *pflag.FlagSet, set *[]string) {
	fs.StringArrayVar(set, "set", nil, "NAME=VALUE for a parameter of the template (repeatable)")
}

// findTemplate reads the template of a name, or a file.
func (a *app) findTemplate(name string) (*template.Template, error) {
	text, err := templates.Files.ReadFile(name + ".yaml")
	if err != nil {
		text, err = a.readJobFile(name)
	}
	if err != nil {
		near := train.NearMiss(name, templateNames())
		if near == "" || strings.ContainsAny(name, "/.") {
			return nil, err
		}
		return nil, failure(ExitUsage, "did you mean "+near+"?", "%s: neither a file nor one of the templates %s", name, strings.Join(templateNames(), ", "))
	}
	t, problems := template.Parse(text)
	return t, problem(name, problems)
}

// problem is all problems of a template as one error; nil where there are none.
func problem(name string, problems []template.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return failure(ExitUsage, "", "template %s:\n  %s", name, strings.Join(lines, "\n  "))
}

// renderJob makes a job file that would be understood as a submission.
func (a *app) renderJob(name string, set []string) ([]byte, error) {
	t, err := a.findTemplate(name)
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
	_, err = decodeSpec("the job from template "+name, job)
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

func (a *app) listTemplates() error {
	rows := []templateRow{}
	for _, name := range templateNames() {
		t, err := a.findTemplate(name)
		if err != nil {
			return err
		}
		rows = append(rows, templateRow{name, t.Description, t.Parameters})
	}
	if a.output == "json" {
		return a.printJSON(rows)
	}
	return a.table("TEMPLATE\tWHAT IT DOES", func(w io.Writer) {
		for _, r := range rows {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", r.Name, r.Description)
		}
	})
}

func (a *app) listParameters(name string) error {
	t, err := a.findTemplate(name)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(templateRow{name, t.Description, t.Parameters})
	}
	return a.table("PARAMETER\tTYPE\tDEFAULT\tWHAT IT IS", func(w io.Writer) {
		for _, p := range t.Parameters {
			value := "-"
			switch {
			case p.Required:
				value = "required"
			case p.Default != nil:
				value = fmt.Sprint(p.Default)
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", cell(p.Name, 40), p.Type, cell(value, 40), cell(p.Doc, 160))
		}
	})
}
