package jobs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestEveryExampleJobIsUnderstood(t *testing.T) {
	files, err := filepath.Glob("../../../../examples/*o*s/*.yaml") // jobs, networks
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		a := &console.Console{}
		spec, err := ReadSpecFile(a, file)
		if err != nil || spec.Name == "" || spec.WorkDir != root {
			t.Errorf("%s: %+v, error %v", file, spec, err)
		}
	}
}

// A job starts in a folder of its own: a program beside the job file is not there, and submit warns of it.
func TestAJobFileWarnsOfFilesThatItsJobDoesNotFind(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"train.py": "", "without.yaml": "command: [python3, train.py]\n", "with.yaml": "command: [python3, train.py]\nwork_dir: .\n", "other.yaml": "command: [python3, /train.py, -m, x]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, warned := range map[string]bool{"without.yaml": true, "with.yaml": false, "other.yaml": false} {
		code, _, errs := clitest.Execute(Commands(), "", "submit", filepath.Join(dir, file), "--name", "a", "--print-event")
		if code != exit.OK || strings.Contains(errs, "where train.py is not") != warned {
			t.Errorf("%s: exit %d, %q", file, code, errs)
		}
	}
}

func TestAJobFileWithoutANameIsNamedAfterItsCommand(t *testing.T) {
	for _, tt := range []struct {
		file, name string
		args       []string
	}{
		{"command: [python3, src/train.py]", "train", nil},
		{"script_path: /custom/net.py", "net", nil},
		{"command: [python3, src/train.py]\nname: other", "other", nil},
		{"command: [python3, src/train.py]", "given", []string{"--name", "given"}},
		{"max_epochs: 2", "sleep", []string{"--", "sleep", "1"}},
	} {
		code, out, errs := clitest.Execute(Commands(), tt.file, append([]string{"submit", "-", "--print-event"}, tt.args...)...)
		if code != exit.OK || !strings.Contains(out, `"name": "`+tt.name+`"`) || !strings.Contains(out, "yard.job."+tt.name+"-") {
			t.Errorf("%s %v: exit %d, %s%s", tt.file, tt.args, code, out, errs)
		}
	}
}

func TestFlagsGoOverTheFile(t *testing.T) {
	file := `{"name":"a","command":["x"],"batch_size":1,"training_set_size":1,"max_epochs":1,"priority":10,"env":{"A":"1"},"stop":{"loss_decrease":0.01}}`
	code, out, _ := clitest.Execute(Commands(), file, "submit", "-", "--print-event", "--id", "j1", "--epochs", "7", "--custom-dir", ".", "-e", "B=2", "--port", "8080:80", "--stop-epochs", "5", "--", "y", "-z")
	for _, want := range []string{`"subject": "yard.job.j1.submitted.v1"`, `"max_epochs": 7`, `"priority": 10`, `"A": "1"`, `"B": "2"`, `"node_port": 8080`, `"loss_decrease": 0.01`, `"epochs": 5`, `"-z"`, `"custom_dir": "/`} {
		if code != exit.OK || !strings.Contains(out, want) {
			t.Errorf("exit %d, no %s in %s", code, want, out)
		}
	}
}

func TestTheBatchIsChosenByFlags(t *testing.T) {
	file := `{"name":"a","command":["x"],"batch_size":8,"training_set_size":1,"max_epochs":1,"adaptive_batch":{"max":64,"min_per_device":2}}`
	code, out, errs := clitest.Execute(Commands(), file, "submit", "-", "--print-event", "--adaptive-batch-per-device", "32", "--learning-rate", "sqrt", "--global-batch-size", "16")
	want := `"global_batch_size": 16, "adaptive_batch": { "max": 64, "max_per_device": 32, "min_per_device": 2, "learning_rate": "sqrt" }`
	if got := strings.Join(strings.Fields(out), " "); code != exit.OK || !strings.Contains(got, want) {
		t.Errorf("exit %d, no %s in %s %s", code, want, got, errs)
	}
	if _, out, _ := clitest.Execute(Commands(), file, "submit", "-", "--print-event", "--batch-per-device", "--adaptive-batch", "128"); !strings.Contains(out, `"batch_per_device": true`) || !strings.Contains(out, `"max": 128`) {
		t.Error(out)
	}
}

func TestBadSubmissionsAreRefusedBeforeTheBus(t *testing.T) {
	for name, tt := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"near miss":   {`{"name":"a","batchsize":1}`, []string{"-"}, "batch_size"},
		"not YAML":    {"a: [", []string{"-"}, "line 1: neither JSON nor YAML"},
		"an id":       {`{"name":"a"}`, []string{"-", "--id", "a.b"}, "--id"},
		"a port":      {"", []string{"--port", "80"}, "NODE:CONTAINER"},
		"environment": {"", []string{"-e", "A"}, "NAME=VALUE"},
		"two files":   {"", []string{"a", "b"}, "after --"},
		"a batch":     {"", []string{"--adaptive-batch", "many"}, "--adaptive-batch"},
		"too large":   {strings.Repeat(" ", maxFileBytes+1), []string{"-"}, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := clitest.Execute(Commands(), tt.stdin, append([]string{"submit"}, tt.args...)...)
			if code != exit.Usage || !strings.Contains(errs, tt.want) || out != "" {
				t.Errorf("exit %d, message %q, output %q; want exit 2 and a word of %q", code, errs, out, tt.want)
			}
		})
	}
}

func TestNewIDsAreIDs(t *testing.T) {
	for _, name := range []string{"ResNet 50", "", "über", strings.Repeat("x", 100), "-a-", "../etc"} {
		if _, err := train.ParseJobID(string(NewID(name))); err != nil {
			t.Errorf("name %q: %v", name, err)
		}
	}
}
