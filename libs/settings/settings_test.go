package settings_test

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/config"
	"github.com/switchyard-dl/switchyard/libs/settings"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), config.FileName)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// load reads flags, a file and an environment as a process does.
func load(t *testing.T, text string, environ []string, flags ...string) (*settings.All, *config.Set, error) {
	t.Helper()
	all, set := settings.New()
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	line := set.CommandLine(fs, nil)
	if err := fs.Parse(append(flags, "--config", write(t, text))); err != nil {
		return nil, nil, config.FlagError(err)
	}
	_, err := line.Load(environ)
	return all, set, err
}

func TestTheStrongestSourceCounts(t *testing.T) {
	text := `
planner: {policy: fifo, plan_interval: 7s, quotas: {a: 1, b: 2}, power_limits: [150, 200.5]}
data:
executor: {pod_tolerate: []}
nodeagent: {cpu_slots: 4, labels: {zone: a}, redfish_insecure: true, probe_listen: ["10.0.0.1:7070"]}
admission: {allow_roots: [/data]}
`
	all, set, err := load(t, text, []string{"SWITCHYARD_CPU_SLOTS=5", "SWITCHYARD_POLICY=srtf", "SWITCHYARD_JOB_API=ours", "SWITCHYARD_JOB_LOG_LIMIT=3", "HOME=/"}, "--policy", "optimus", "--allow-root=/x", "--allow-root=/y")
	if err != nil {
		t.Fatal(err)
	}
	want, _ := settings.New()
	want.Planner.Policy, want.Planner.PlanInterval, want.Planner.Quotas, want.Planner.PowerLimits = "optimus", 7*time.Second, map[string]int{"a": 1, "b": 2}, []float64{150, 200.5}
	want.NodeAgent.CPUSlots, want.NodeAgent.Labels, want.NodeAgent.Meters.RedfishInsecure, want.NodeAgent.Probes.Listen = 5, map[string]string{"zone": "a"}, true, []string{"10.0.0.1:7070"}
	// Folders of the command line are added to those of the file.
	want.Admission.AllowRoots, want.Executor.Kubernetes.Tolerate, want.Executor.JobLogLimit = []string{"/data", "/x", "/y"}, nil, 3
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
	sources := map[string]config.Source{}
	for _, s := range set.All() {
		if s.Source != config.Default {
			sources[s.Path()] = s.Source
		}
	}
	if diff := cmp.Diff(map[string]config.Source{
		"planner.policy": config.Flag, "planner.plan_interval": config.File, "planner.quotas": config.File, "planner.power_limits": config.File, "nodeagent.cpu_slots": config.Environment,
		"nodeagent.labels": config.File, "nodeagent.redfish_insecure": config.File, "nodeagent.probe_listen": config.File, "admission.allow_roots": config.Flag,
		"executor.pod_tolerate": config.File, "executor.job_log_limit": config.Environment,
	}, sources); diff != "" {
		t.Error(diff)
	}
}

// Who names one folder more does not lose those that everybody has.
func TestAllowRootAddsToTheDefault(t *testing.T) {
	standard, _ := settings.New()
	for _, source := range [][]string{nil, {"SWITCHYARD_ALLOW_ROOT=/x"}} {
		var flags []string
		if source == nil {
			flags = []string{"--allow-root", "/x"}
		}
		all, _, err := load(t, "", source, flags...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(append(standard.Admission.AllowRoots, "/x"), all.Admission.AllowRoots); diff != "" {
			t.Error(diff)
		}
	}
}

func TestEverythingThatIsWrongIsToldAtOnce(t *testing.T) {
	_, _, err := load(t, `planner:
  polisy: fifo
  plan_interval: 5
  quotas: {a: x}
  fairness_bound: 0.5
planer: {}
log_level: debug
nodeagent:
  meter_name: a
  pdu_url: ftp://reader:secret@pdu
  cpu_slots: -1
  cpu_slots: 2
  rack_label: x
  label: {a: b}
executor: {job_mounts: allways, kill_after: }
data: {dir: here}
`, []string{"SWITCHYARD_KUBE_QPS=3", "SWITCHYARD_REFIT_INTERVAL=1ms"}, "--http", "x")
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"line 2: planner.polisy: no such setting (did you mean policy?)",
		"line 3: planner.plan_interval: want a duration, found 5 (write it as 90s or 1h30m)",
		`line 4: planner.quotas.a: want a whole number, found "x"`,
		"line 5: planner.fairness_bound 0.5: want 0, or 1 or more",
		"line 6: planer: no such section (did you mean planner?)",
		"line 7: log_level: no such section (it belongs into the section process, as log_level)",
		"line 9: nodeagent.meter_name: is gone: meters are found by",
		"line 10: nodeagent.pdu_url (set): want http://ADDRESS",
		"line 11: nodeagent.cpu_slots -1: want 0 to 4096",
		"line 12: nodeagent.cpu_slots: given twice (keep one of them)",
		"line 13: nodeagent.rack_label: no such setting (it belongs into the section planner, as rack_label)",
		"line 14: nodeagent.label: no such setting (did you mean labels?)",
		"line 15: executor.job_mounts allways: want auto or never",
		"line 15: executor.kill_after: has no value",
		"line 16: data.dir here: want an absolute path",
		"environment variable SWITCHYARD_KUBE_QPS is gone: the executor sends",
		"SWITCHYARD_REFIT_INTERVAL 1ms: want 100ms to 1h0m0s",
		"--http x: want host:port",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("a password is told: %v", err)
	}
}

// A flag of an earlier version never vanishes: each answers with what has taken its place.
// What fits no other setting is refused before anything starts.
func TestSettingsFitEachOther(t *testing.T) {
	for text, want := range map[string]string{
		"bus: {replicas: 3}":                                 "bus.replicas 3: want 1 without bus.url",
		"admission: {notify_smtp: host}":                     "admission.notify_smtp host: want host:port, e.g. mail.example.com:25",
		`admission: {notify_users: {ann: "command:page"}}`:   "ann=command:page: admission.notify_commands has no page",
		`admission: {notify_users: {ann: "mailto:ann@lab"}}`: "ann=mailto:ann@lab: no mail is sent without admission.notify_smtp",
		`bus: {replicas: 3, url: "nats://a:4222"}`:           "",
		`admission: {notify_smtp: "host:25", notify_users: {ann: "command:page", bob: "mailto:bob@lab"}, notify_commands: {page: /bin/page}}`: "",
	} {
		_, _, err := load(t, text, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, _, err := load(t, "bus: {replicas: 3}", []string{"SWITCHYARD_NATS=nats://a:4222"}); err != nil {
		t.Errorf("the bus is named by the environment: %v", err)
	}
}

func TestFlagsOfEarlierVersionsAreAnswered(t *testing.T) {
	_, set := settings.New()
	for _, s := range set.All() {
		_, _, err := load(t, "", nil, "--"+s.Name, "1")
		moved, isMoved := errors.AsType[config.Moved](err)
		if s.Typed() == isMoved || isMoved && (!strings.Contains(moved.Error(), s.Path()) || !strings.Contains(moved.Error(), s.Variable())) {
			t.Errorf("--%s: %v", s.Name, err)
		}
	}
	for _, name := range []string{"kube-qps", "kube-concurrency", "meter-name", "heartbeat-steps", "probe-classes", "probe-first-port", "probe-identify", "probe-trace-interval"} {
		for _, words := range [][]string{{"--" + name, "1"}, {"--" + name + "=1"}} {
			if _, _, err := load(t, "", nil, words...); err == nil || !strings.Contains(err.Error(), "--"+name+" is gone: ") {
				t.Errorf("%v: %v", words, err)
			}
		}
	}
}

func TestWhichFileIsRead(t *testing.T) {
	folder := t.TempDir()
	if path, err := config.Locate("", folder); err != nil || path != "" && path != config.SystemFile {
		t.Errorf("%q %v", path, err)
	}
	inside := filepath.Join(folder, config.FileName)
	if err := os.WriteFile(inside, []byte("planner: {policy: fifo}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for named, want := range map[string]string{"": inside, "/else/x.yaml": "/else/x.yaml"} {
		if path, err := config.Locate(named, folder); err != nil || path != want {
			t.Errorf("%q %v, want %s", path, err, want)
		}
	}
	// The data folder is that of the flag, else that of the environment.
	for _, words := range [][]string{{"--data-dir", folder}, nil} {
		all, set := settings.New()
		fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
		line := set.CommandLine(fs, nil)
		environ := []string{"SWITCHYARD_DATA_DIR=" + folder}
		if words != nil {
			environ = []string{"SWITCHYARD_DATA_DIR=/nowhere"}
		}
		if err := fs.Parse(words); err != nil {
			t.Fatal(err)
		}
		if path, err := line.Load(environ); err != nil || path != inside || all.Planner.Policy != "fifo" {
			t.Errorf("%v: %s %s %v", words, path, all.Planner.Policy, err)
		}
	}
	_, set := settings.New()
	if err := set.Load("/dev/null", nil); err != nil {
		t.Errorf("a file without anything: %v", err)
	}
}

// Every setting has one name of each kind, no two share one, and no section is empty in the reference.
func TestTheDeclarationsAreWhole(t *testing.T) {
	_, set := settings.New()
	paths, names := map[string]bool{}, map[string]bool{}
	for _, s := range set.All() {
		if paths[s.Path()] || names[s.Name] || s.Help == "" || s.Key == "" {
			t.Errorf("%s (%s) is declared twice, or says nothing", s.Path(), s.Name)
		}
		paths[s.Path()], names[s.Name] = true, true
	}
	for _, section := range set.Sections() {
		if section.About == "" {
			t.Errorf("the section %s says nothing", section.Name)
		}
	}
	if err := set.Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	if text := settings.Reference(); strings.Contains(text, "|---|\n\n") {
		t.Error("the reference has an empty table")
	}
}

func TestTheExampleIsRight(t *testing.T) {
	const folder = "../../deploy/"
	_, set := settings.New()
	if err := set.Load(folder+config.FileName, nil); err != nil {
		t.Error(err)
	}
	for _, s := range set.Sections() {
		if text, err := os.ReadFile(folder + config.FileName); err != nil || len(s.Settings) > 0 && !strings.Contains(string(text), "\n"+s.Name+":") {
			t.Errorf("the example has no section %s (%v)", s.Name, err)
		}
	}
	schema, err := set.Schema()
	have, readErr := os.ReadFile(folder + "switchyard.schema.json")
	if err != nil || readErr != nil || string(schema) != string(have) {
		t.Errorf("deploy/switchyard.schema.json is stale: run `make generate` (%v, %v)", err, readErr)
	}
	if !json.Valid(schema) {
		t.Error("the schema is no JSON")
	}
}

func TestLevelsInCapitalsAreRead(t *testing.T) {
	all, _, err := load(t, "process: {log_level: WARN}", nil)
	if err != nil || all.NewLogger(io.Discard).Enabled(t.Context(), slog.LevelInfo) || !all.NewLogger(io.Discard).Enabled(t.Context(), slog.LevelWarn) {
		t.Errorf("%q: %v", all.LogLevel, err)
	}
	if _, _, err := load(t, "", []string{"SWITCHYARD_LOG_LEVEL=LOUD"}); err == nil || !strings.Contains(err.Error(), "want debug, info, warn or error") {
		t.Error(err)
	}
}

func TestPasswordsInURLsAreNotShown(t *testing.T) {
	const secret = "hunter2"
	all, set, err := load(t, "bus: {url: \"nats://ann:"+secret+"@bus:4222\"}\nenergy: {influx_url: \"http://ann:"+secret+"@db:8086\"}", nil)
	if err != nil || !strings.Contains(all.NATS, secret) {
		t.Fatal(all.NATS, err)
	}
	if got := set.Find("nats").Value(); got != "nats://xxxxx@bus:4222" {
		t.Error(got)
	}
	if got := set.Find("influx-url").Value(); got != "http://xxxxx@db:8086" {
		t.Error(got)
	}
	for _, wrong := range []string{"htp://ann:" + secret + "@bus", "nats://ann:" + secret + "%@bus"} {
		if _, _, err := load(t, "", []string{"SWITCHYARD_NATS=" + wrong}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func TestWordsOfAProcess(t *testing.T) {
	got := settings.Words("nodeagent", "--", "--policy", "fifo", "--plan-interval", "2s", "--sim-gpu-memory=4", "--data-dir=/d")
	want := settings.Process{Flags: []string{"nodeagent", "--", "--policy", "fifo", "--data-dir=/d"}, Environ: []string{"SWITCHYARD_PLAN_INTERVAL=2s", "SWITCHYARD_SIM_GPU_MEMORY=4"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzReadFile(f *testing.F) {
	text, err := os.ReadFile("../../deploy/" + config.FileName)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(text), "planner: {quotas: {a: 1e99}}", "bus: &a {port: *a}", "nodeagent: [1]", "data:\nbus: {replicas: 0x3}", "# nothing", "energy: {carbon_token: 1}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, set := settings.New()
		wrong := set.ReadFile(text)
		_, again := settings.New()
		if other := again.ReadFile(text); (wrong == nil) != (other == nil) || wrong != nil && wrong.Error() != other.Error() {
			t.Fatalf("%q: %v, then %v", text, wrong, other)
		}
		_ = set.Validate()
	})
}
