package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestEveryExampleJobIsUnderstood(t *testing.T) {
	files, err := filepath.Glob("../../../examples/jobs/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	for _, file := range files {
		a := &app{}
		spec, err := a.readSpecFile(file)
		if err != nil || spec.Name == "" || !strings.HasSuffix(filepath.Clean(spec.WorkDir), "..") {
			t.Errorf("%s: %+v, error %v", file, spec, err)
		}
	}
}

func TestFlagsGoOverTheFile(t *testing.T) {
	var out strings.Builder
	file := `{"name":"a","command":["x"],"batch_size":1,"training_set_size":1,"max_epochs":1,"priority":10,"env":{"A":"1"},"stop":{"loss_decrease":0.01}}`
	code := Main([]string{"switchyard", "submit", "-", "--print-event", "--id", "j1", "--epochs", "7", "--custom-dir", ".", "-e", "B=2", "--port", "8080:80", "--stop-epochs", "5", "--", "y", "-z"}, strings.NewReader(file), &out, &out)
	for _, want := range []string{`"subject": "yard.job.j1.submitted.v1"`, `"max_epochs": 7`, `"priority": 10`, `"A": "1"`, `"B": "2"`, `"node_port": 8080`, `"loss_decrease": 0.01`, `"epochs": 5`, `"-z"`, `"custom_dir": "/`} {
		if code != ExitOK || !strings.Contains(out.String(), want) {
			t.Errorf("exit %d, no %s in %s", code, want, out.String())
		}
	}
}

func TestBadSubmissionsAreRefusedBeforeTheBus(t *testing.T) {
	for name, tt := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"near miss":   {`{"name":"a","batchsize":1}`, []string{"-"}, "batch_size"},
		"not YAML":    {"a: [", []string{"-"}, "neither JSON nor YAML"},
		"an id":       {`{"name":"a"}`, []string{"-", "--id", "a.b"}, "--id"},
		"a port":      {"", []string{"--port", "80"}, "NODE:CONTAINER"},
		"environment": {"", []string{"-e", "A"}, "NAME=VALUE"},
		"two files":   {"", []string{"a", "b"}, "after --"},
		"too large":   {strings.Repeat(" ", maxFileBytes+1), []string{"-"}, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs strings.Builder
			code := Main(append([]string{"switchyard", "submit"}, tt.args...), strings.NewReader(tt.stdin), &out, &errs)
			if code != ExitUsage || !strings.Contains(errs.String(), tt.want) || out.Len() > 0 {
				t.Errorf("exit %d, message %q, output %q; want exit 2 and a word of %q", code, errs.String(), out.String(), tt.want)
			}
		})
	}
}

func TestNewIDsAreIDs(t *testing.T) {
	for _, name := range []string{"ResNet 50", "", "über", strings.Repeat("x", 100), "-a-", "../etc"} {
		if _, err := train.ParseJobID(string(newID(name))); err != nil {
			t.Errorf("name %q: %v", name, err)
		}
	}
}
