package jobs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// enough are settings with which a template that comes with Switchyard makes a job.
func enough(name string) []string {
	set := []string{"name=a", "code=/home/ann/code", "batch_size=8", "training_set_size=80", "epochs=3", "data_url=hdfs://namenode:9000/set", "node_label=gpushare"}
	if name == "spark-bigdl" {
		set = append(set, "application=/custom/train.jar")
	}
	return set
}

func renderTemplate(t *testing.T, name string, set []string, more ...string) (code int, out, errs string) {
	t.Helper()
	args := append([]string{"render", name}, more...)
	for _, pair := range set {
		args = append(args, "--set", pair)
	}
	return clitest.Execute(Commands(), "", args...)
}

func TestEveryTemplateMakesAJob(t *testing.T) {
	names := templateNames()
	if strings.Join(names, " ") != "mxnet-parameter-server pytorch spark-bigdl tensorflow" {
		t.Fatalf("templates %v", names)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			code, out, errs := renderTemplate(t, name, enough(name))
			if code != exit.OK {
				t.Fatalf("exit %d: %s", code, errs)
			}
			// What is printed is what `switchyard submit -` takes.
			spec, err := ReadSpecFile(&console.Console{Stdin: strings.NewReader(out)}, "-")
			if err != nil || spec.Name != "a" || spec.MaxEpochs != 3 || spec.Env["DATA_URL"] != "hdfs://namenode:9000/set" || spec.NodeLabels["gpushare"] != "true" {
				t.Fatalf("%+v, error %v", spec, err)
			}
			var same train.Spec
			if code, out, errs = renderTemplate(t, name, enough(name), "-o", "json"); code != exit.OK || json.Unmarshal([]byte(out), &same) != nil || same.Name != "a" {
				t.Fatalf("exit %d: %s%s", code, out, errs)
			}
			if code, _, errs = renderTemplate(t, name, nil); code != exit.Usage || !strings.Contains(errs, "batch_size (int) is missing") {
				t.Errorf("without settings: exit %d: %s", code, errs)
			}
		})
	}
}

func TestChoicesOfTemplates(t *testing.T) {
	for _, tt := range []struct{ name, set, want string }{
		{"pytorch", "max_devices=4", "strategy: all_reduce"},
		{"pytorch", "memory_mib=4096", "estimated_memory_mib: 4096"},
		{"tensorflow", "servers=2", "parameter_servers: {max: 2}"},
		{"mxnet-parameter-server", "async=true", "dist_async"},
		{"mxnet-parameter-server", "records=a b.rec", "hdfs://namenode:9000/set/a b.rec"},
		{"spark-bigdl", "class=org.example.Train", "- org.example.Train"},
		{"spark-bigdl", "master=local[2]", "log_format: bigdl"},
	} {
		if code, out, errs := renderTemplate(t, tt.name, append(enough(tt.name), tt.set)); code != exit.OK || !strings.Contains(out, tt.want) {
			t.Errorf("%s with %s: exit %d, no %s in\n%s%s", tt.name, tt.set, code, tt.want, out, errs)
		}
	}
}

func TestTemplatesOfOnesOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.yaml")
	for _, tt := range []struct {
		text, want string
		code       int
	}{
		{"parameters: {n: {type: int, default: 3}}\n---\nname: x\nmax_epochs: {{ .n }}\n", "max_epochs: 3", exit.OK},
		{"parameters: {n: {type: int, default: 3}}\n---\nname: x\nmax_epoch: {{ .n }}\n", "did you mean max_epochs?", exit.Usage},
		{"parameters: {n: {type: int, default: 3}}\n---\nname: {{ .n }}\n", "put it in quotes", exit.Usage},
		{"parameters: {}\n---\nname: {{ .m }}\n", "line 3: parameter m is not declared", exit.Usage},
	} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, errs := renderTemplate(t, file, nil); code != tt.code || !strings.Contains(out+errs, tt.want) {
			t.Errorf("exit %d, no %q in %s%s", code, tt.want, out, errs)
		}
	}
	if code, _, errs := renderTemplate(t, "pytorh", nil); code != exit.Usage || !strings.Contains(errs, "did you mean pytorch?") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if code, out, _ := renderTemplate(t, "pytorch", nil, "--list"); code != exit.OK || !strings.Contains(out, "training_set_size  int") {
		t.Errorf("exit %d: %s", code, out)
	}
	if code, out, _ := renderTemplate(t, "--list", nil, "-o", "json"); code != exit.OK || !strings.Contains(out, `"name": "spark-bigdl"`) {
		t.Errorf("exit %d: %s", code, out)
	}
}
