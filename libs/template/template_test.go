package template

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/strict"
)

const sound = `# A template.
description: trains
parameters:
  name: {type: string, required: true, doc: its name}
  epochs: {type: int, default: 5, min: 1, max: 100}
  rate: {type: float, min: 0, max: 1}
  fast: {type: bool}
  data: {type: path}
  mode: {type: string, default: sync, choices: [sync, async]}
---
name: {{ .name }}
max_epochs: {{ .epochs }}
{{- if .fast }}
command: [run, "--epochs={{ .epochs }}", '{{ .mode }}']
{{- end }}
{{- if .data }}
datasets_dir: {{ .data }}
{{- end }}
`

func words(problems strict.Problems) string {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func parsed(t interface{ Fatal(...any) }, text string) *Template {
	made, problems := Parse([]byte(text))
	if len(problems) > 0 {
		t.Fatal(words(problems))
	}
	return made
}

func TestASoundTemplateIsRendered(t *testing.T) {
	made := parsed(t, sound)
	values, problems := made.Settings([]string{"name=a: b # c", "fast=true", "data=/d/../e"})
	if len(problems) > 0 {
		t.Fatal(words(problems))
	}
	job, problems := made.Render(values)
	want := "name: 'a: b # c'\nmax_epochs: 5\ncommand: [run, \"--epochs=5\", \"sync\"]\ndatasets_dir: /e\n"
	if len(problems) > 0 {
		t.Fatal(words(problems))
	}
	var got, wanted any
	if err := yaml.Unmarshal(job, &got); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Fatalf("%s\n%s", job, diff)
	}
}

func TestAllFaultsOfATemplateAreReported(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"one document": {"name: x\n", "no line --- between the parameters and the job"},
		"fields": {`description: x
parameters:
  a-b: {type: string}
  b: {type: strin}
  c: {type: int, mim: 1}
  d: {type: int, default: x}
  e: {type: int, min: 3, max: 2}
  f: {type: string, min: 3}
  g: {type: string, required: true, default: x}
  h: {type: bool, choices: [yes]}
  i: {type: int, max: 3, default: 4}
  i: {type: int}
---
name: {{ .nme }}
`, `line 3: parameter "a-b": want letters, digits and '_', not beginning with a digit
line 4: parameter b: type "strin": want string, int, float, bool or path (did you mean string?)
line 5: parameters.c.mim: no such field (did you mean min?)
line 6: default of parameter d: want a whole number, found "x"
line 7: parameter e: min is 3, max 2
line 8: parameter f: min and max are for numbers
line 9: parameter g: required, but it has a default
line 10: choice of parameter h: want true or false, found "yes"
line 11: default of parameter i: want at most 3, found 4
line 12: parameters.i: given twice (keep one of them)
line 14: parameter nme is not declared (did you mean e?)`},
		"a header of other things": {"descriptoin: x\n---\n", "line 1: descriptoin: no such field (did you mean description?)"},
		"undeclared":               {"parameters:\n  epochs: {type: int}\n---\n\nname: x\nmax_epochs: {{ if .fast }}{{ $.epoch }}{{ else }}1{{ end }}\n", "line 6: parameter fast is not declared\nline 6: parameter epoch is not declared (did you mean epochs?)"},
		"no end":                   {"parameters: {}\n---\nname: x\n{{ if true }}\n", "line 5: unexpected EOF"},
		"unknown function":         {"parameters: {}\n---\nname: {{ env \"HOME\" }}\n", `line 3: function "env" not defined`},
		"others":                   {"parameters: {}\n---\n{{ define \"x\" }}{{ end }}\n", "line 3: a template cannot define others"},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := Parse([]byte(tt.text))
			if diff := cmp.Diff(tt.want, words(problems)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAllFaultsOfSettingsAreReported(t *testing.T) {
	_, problems := parsed(t, sound).Settings([]string{"epochs=1000", "epoch=3", "rate=NaN", "fast=yes", "data=here", "mode=asink", "epochs=2", "x"})
	want := `parameter epochs: want at most 100, found 1000
epoch: no such parameter (did you mean epochs?)
parameter rate: want a number, found "NaN"
parameter fast: want true or false, found "yes"
parameter data: want an absolute path, found "here"
parameter mode: want sync, async, found "asink" (did you mean async?)
parameter epochs is set twice
"x": want NAME=VALUE
parameter name (string) is missing: its name`
	if diff := cmp.Diff(want, words(problems)); diff != "" {
		t.Error(diff)
	}
	if _, problems := parsed(t, sound).Settings([]string{"name="}); words(problems) != "parameter name: it is required, and set to nothing" {
		t.Error(words(problems))
	}
}

func TestFaultsWhileRendering(t *testing.T) {
	for name, tt := range map[string]struct{ body, want string }{
		"a scalar has no fields": {"name: {{ .name.first }}", "can't evaluate field first"},
		"no YAML":                {"name: [{{ .name }}", "the rendered job is neither JSON nor YAML"},
		"an anchor":              {"name: &{{ .name }} x", "a parameter stands where only a value"},
		"too long":               {"name: {{ range 100000 }}xxxxxxxxxxxxxxxxxxxxxxxxxxxx{{ end }}", "longer than any job file"},
	} {
		t.Run(name, func(t *testing.T) {
			made := parsed(t, "parameters: {name: {type: string}}\n---\n"+tt.body+"\n")
			if _, problems := made.Render(map[string]any{"name": "x"}); !strings.Contains(words(problems), tt.want) {
				t.Errorf("%q, want %q", words(problems), tt.want)
			}
		})
	}
}

// TestNoValueBreaksOutOfItsScalar puts any text into every place for a value: the result differs from the template
// only in these places.
func TestNoValueBreaksOutOfItsScalar(t *testing.T) {
	made := parsed(t, `parameters:
  v: {type: string}
---
plain: {{ .v }}
joined: /a/{{ .v }}/b
double: "{{ .v }}"
single: 'x{{ .v }}'
list: [{{ .v }}, b]
{{ .v }}-key: c # {{ .v }}
anchored: &a {{ .v }}
alias: *a
block: |
  one {{ .v }}
printed: {{ printf "<%s>" .v }}
twice: {{ .v }}{{ .v }}
`)
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(
			rapid.String(), rapid.SampledFrom([]string{"a: b", "x\ny: z", "\"", "'", "]", "}, {", "- a", "# c", "!!int 3", "*a", "&a", "null", "true", "12", "1e3", "~", "|", " x ", "\x00", "\u2028", mark + "0Q", "{{ .v }}", "---", "\t", "\t\n", "\n\tx"}),
		).Draw(t, "value")
		values, problems := made.Settings([]string{"v=" + v})
		if len(problems) > 0 {
			t.Fatal(words(problems))
		}
		job, problems := made.Render(values)
		if len(problems) > 0 {
			t.Fatal(words(problems))
		}
		var got map[string]any
		if err := yaml.Unmarshal(job, &got); err != nil {
			t.Fatalf("%v:\n%s", err, job)
		}
		want := map[string]any{
			"plain": v, "joined": "/a/" + v + "/b", "double": v, "single": "x" + v, "list": []any{v, "b"}, v + "-key": "c", "anchored": v, "alias": v,
			"block": "one " + v + "\n", "printed": "<" + v + ">", "twice": v + v,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\n%s", diff, job)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(sound)
	f.Add("parameters:\n  a: {type: int, default: 3}\n---\na: {{ with .a }}{{ . }}{{ end }}\n")
	f.Add("parameters: []\n---\n")
	f.Add("a: &a [*a]\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		made, problems := Parse([]byte(text))
		if (made == nil) == (len(problems) == 0) {
			t.Fatalf("a template %v and problems %v", made, problems)
		}
		if made != nil {
			_, _ = made.Settings(nil)
		}
	})
}
