package event

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func TestDecodeSubmissionTakesEveryField(t *testing.T) {
	priority, restarts, deadline, eta := 70, 0, time.Date(2030, 1, 31, 18, 0, 0, 0, time.UTC), 0.5
	want := train.Spec{
		Name: "mnist", Family: "digits", Project: "thesis", Labels: map[string]string{"phase": "warmup"}, User: "ann", Tenant: "vision", UID: 1001, Command: []string{"python", "train.py"}, ScriptPath: "/custom/train.py", Image: "torch:2", WorkDir: "/w",
		CustomDir: "/c", SnapshotsDir: "/s", DatasetsDir: "/d", DataURL: "https://x/d", Upload: "0a", Env: map[string]string{"http_proxy": "a", "HTTP_PROXY": "b"}, SecretEnv: map[string]string{"KEY": "file:/k"},
		Shell:     &train.ShellSpec{Key: "0a", Keep: true, Idle: unit.Duration(time.Hour)},
		LogFormat: train.LogBigDL, Progress: &train.ProgressSpec{Pattern: "(?P<epoch>.)", CSV: "*.csv", TensorBoard: "runs", Names: map[string]string{"loss": "Loss"}}, Preempt: train.PreemptBySignal, Checkpoint: "checkpoints/*.pt", BatchSize: 64, GlobalBatchSize: 256, BatchPerDevice: true, AdaptiveBatch: &train.AdaptiveBatchSpec{Max: 512, MaxPerDevice: 128, LearningRate: train.RateSqrt}, TrainingSetSize: 60000, MaxEpochs: 10, SingleDevice: true, AllowSharing: true, ShareAcrossTenants: true, TuneEffectiveBatch: true, DisableSharing: true, EstimatedMemoryMiB: 4096, EstimatedHours: 1.5,
		Cores: 2, MainMemoryMiB: 8192,
		Ports: []train.PortMapping{{NodePort: 30000, ContainerPort: 6006}}, Priority: &priority, MinDevices: 1, MaxDevices: 2,
		Strategy: train.StrategyAllReduce, Launch: train.LaunchPerDevice, MaxSteps: 900, RestartSilent: true, MaxRestarts: &restarts, Retries: &restarts, Deadline: &deadline,
		Stop: &train.StopSpec{LossDecrease: 0.001, Epochs: 5}, ParameterServers: &train.ServersSpec{Max: 4, Cores: 2, MemoryMiB: 512, Async: true},
		NodeLabels: map[string]string{"gpushare": "true"},
		After:      &train.AfterSpec{OK: []train.JobID{"a"}, Any: []train.JobID{"b"}, Failed: []train.JobID{"c"}}, TimeLimit: unit.Duration(2 * time.Hour),
		Continue: "d", Array: "0-9%2", ArrayMember: &train.ArrayMember{Array: "e", Index: 3, Count: 10, AtOnce: 2},
		Devices: 2, Device: train.KindGPU, GPU: "H100|A100", GPUMemory: "20GiB", CPUs: 2, Memory: "8GiB",
		Notify: []train.NotifySpec{{On: []train.NoticeKind{train.NoticeLate}, Webhook: "https://x"}},
		Energy: &train.EnergySpec{Eta: &eta, Group: "nightly", BatchSizes: []int{32, 64}, StartBy: &deadline},
	}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeFor[train.Spec]().NumField() {
		if reflect.ValueOf(want).Field(i).IsZero() {
			t.Fatalf("this test leaves out %s", reflect.TypeFor[train.Spec]().Field(i).Name)
		}
	}
	got, reasons := DecodeSubmission(data)
	if len(reasons) > 0 {
		t.Fatalf("reasons %v", reasons)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestSecondNamesMeanTheSame(t *testing.T) {
	first, _ := DecodeJobFile([]byte(`{"max_epochs":3,"estimated_hours":2.5,"estimated_memory_mib":100,"script_path":"a.py","ports":[{"node_port":1,"container_port":2}]}`))
	second, problems := DecodeJobFile([]byte(`{"epochs":3,"hours":2.5,"memory_mib":100,"script":"a.py","port":[{"node_port":1,"container_port":2}]}`))
	if diff := cmp.Diff(first, second); diff != "" || len(problems) > 0 || first.MaxEpochs != 3 {
		t.Error(diff, problems)
	}
}

func TestDecodeSubmissionNamesTheProblem(t *testing.T) {
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	cases := []struct {
		name, body string
		want       []string // "Code field: message (hint)"
	}{
		{"fine", `{"name":"a"}`, nil},
		{"times that are none", `{"deadline":"tomorrow"}`, []string{`WrongType deadline: want a time by RFC 3339, found "tomorrow" (write it as 2026-01-31T18:00:00Z)`}},
		{"times as numbers", `{"deadline":1770000000}`, []string{"WrongType deadline: want a time, found 1770000000 (write it as 2026-01-31T18:00:00Z)"}},
		{"a time limit below 0", `{"time_limit":-1}`, []string{`WrongType time_limit: want a time above 0 such as 90m, 2h or 1d12h, found "-1"`}},
		{"a time limit of 0", `{"time_limit":"0s"}`, []string{`WrongType time_limit: want a time above 0 such as 90m, 2h or 1d12h, found "0s"`}},
		{"a time limit that is none", `{"time_limit":["2h"]}`, []string{"WrongType time_limit: want text, found a list"}},
		{"whole numbers in other spellings", `{"batch_size":8.0,"training_set_size":6e4}`, nil},
		{"unknown key with a near miss", `{"batchsize":1}`, []string{"UnknownField batchsize: no such field (did you mean batch_size?)"}},
		{"other case", `{"Batch_Size":1}`, []string{"UnknownField Batch_Size: no such field (did you mean batch_size?)"}},
		{"second names", `{"epochs":3,"hours":2.5,"memory_mib":100,"script":"a.py","port":[{"node_port":1,"container_port":2}]}`, nil},
		{"both names", `{"max_epochs":3,"epochs":4}`, []string{`DuplicateField epochs: given twice: as "max_epochs" and as "epochs" (keep max_epochs)`}},
		{"another tool's name", `{"est_nhours":2,"is_single_gpu":true}`, []string{
			"UnknownField est_nhours: no such field (did you mean estimated_hours?)", "UnknownField is_single_gpu: no such field (did you mean single_device?)",
		}},
		{"unknown key without a near miss", `{"colour":1}`, []string{"UnknownField colour: no such field"}},
		{"unknown key below ports", `{"ports":[{"node_prot":1}]}`, []string{"UnknownField ports[0].node_prot: no such field (did you mean node_port?)"}},
		{"duplicate", `{"name":"a","name":"b"}`, []string{"DuplicateField name: given twice (keep one of them)"}},
		{"duplicate in another case", `{"image":"a","IMAGE":"b"}`, []string{`DuplicateField IMAGE: given twice: as "image" and as "IMAGE" (keep one of them)`}},
		{"duplicate variable", `{"env":{"A":"1","A":"2"}}`, []string{"DuplicateField env.A: given twice (keep one of them)"}},
		{"wrong types", `{"batch_size":"abc","name":5,"single_device":"true","estimated_hours":[],"command":"python a.py","env":{"N":1},"ports":{}}`, []string{
			`WrongType batch_size: want a whole number, found "abc"`,
			`WrongType name: want text, found 5 (put it in quotes: "5")`,
			`WrongType single_device: want true or false, found "true"`,
			`WrongType estimated_hours: want a number, found a list`,
			`WrongType command: want a list, found "python a.py" (write a list: ["python", "train.py"])`,
			`WrongType env.N: want text, found 1 (put it in quotes: "1")`,
			`WrongType ports: want a list, found an object`,
		}},
		{"fraction", `{"max_epochs":1.5}`, []string{"WrongType max_epochs: want a whole number, found 1.5"}},
		{"null", `{"priority":null}`, []string{"WrongType priority: want a whole number, found null (leave the key out)"}},
		{"out of range", `{"batch_size":99999999999999999999,"estimated_hours":1e999}`, []string{
			"OutOfRange batch_size: want a whole number of at most 2^53, found 99999999999999999999",
			"OutOfRange estimated_hours: want a finite number, found 1e999",
		}},
		{"no numbers", `{"estimated_hours": NaN, "batch_size": -Infinity, "name": 1, "single_device": True}`, []string{
			"NotFinite estimated_hours: NaN is no JSON number (give a finite number or leave the field out)",
			"NotFinite batch_size: -Infinity is no JSON number (give a finite number or leave the field out)",
			"WrongLiteral single_device: True is no JSON (write true)",
			`WrongType name: want text, found 1 (put it in quotes: "1")`,
		}},
		{"not an object", `[1]`, []string{"NotAnObject : want one JSON object, found a list"}},
		{"no JSON", "{\n \"name\": \"a\",\n}", []string{"MalformedJSON : line 3, column 1: no JSON: invalid character '}' looking for beginning of object key string"}},
		{"two values", `{"name":"a"} {}`, []string{"MalformedJSON : line 1, column 14: no JSON: invalid character '{' after top-level value"}},
		{"nothing", ``, []string{"MalformedJSON : line 1, column 1: no JSON: unexpected end of JSON input"}},
		{"too deep", `{"ports":` + deep + `}`, []string{"TooDeep ports" + strings.Repeat("[0]", 31) + ": nested deeper than 32 levels"}},
		{"not UTF-8", "{\"name\":\"\xff\"}", []string{"NotUTF8 : the text is not UTF-8 (save the file as UTF-8)"}},
		{"too large", `{"name":"` + strings.Repeat("x", MaxBodyBytes) + `"}`, []string{"TooLarge : the text has 262155 bytes, at most 262144 are read"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			_, reasons := DecodeSubmission([]byte(tc.body))
			var got []string
			for _, r := range reasons {
				r.Hint = strings.Replace(r.Hint, `the body is one JSON object, such as {"name": "mnist", ..}`, "", 1)
				line := fmt.Sprintf("%s %s: %s", r.Code, r.Field, r.Message)
				if r.Hint != "" {
					line += " (" + r.Hint + ")"
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeSubmissionKeepsTheAnswerSmall(t *testing.T) {
	var b strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&b, `,"k%d":1`, i)
	}
	_, reasons := DecodeSubmission([]byte("{" + b.String()[1:] + "}"))
	if len(reasons) != strict.MaxProblems+1 || reasons[strict.MaxProblems].Message != "and 19950 more problems" {
		t.Fatalf("%d reasons, the last one %v", len(reasons), reasons[len(reasons)-1])
	}
	answer := Fact{Body: Rejected{Reasons: reasons}}
	if data, err := answer.Encode(); err != nil || len(data) > 32<<10 {
		t.Fatalf("%d bytes, error %v", len(data), err)
	}
}

func TestDecodeBodyIgnoresUnknownKeys(t *testing.T) {
	kind, ok := Find(JobSubject("a", FactSucceeded))
	if !ok {
		t.Fatal("no such kind")
	}
	body, err := DecodeBody(kind, []byte(`{"attempt":2,"new_in_v1_later":true}`))
	if s, isSucceeded := body.(*Succeeded); err != nil || !isSucceeded || s.Attempt != 2 {
		t.Fatalf("%#v, %v", body, err)
	}
	if cancel, _ := Find(JobSubject("a", FactCancelRequested)); cancel.New != nil {
		if _, err := DecodeBody(cancel, nil); err != nil {
			t.Errorf("a cancellation without a body: %v", err)
		}
	}
	for _, bad := range []string{``, `{"attempt":"x"}`, `{`, strings.Repeat(" ", MaxBodyBytes) + "{}"} {
		if _, err := DecodeBody(kind, []byte(bad)); err == nil {
			t.Errorf("accepted %.20q", bad)
		}
	}
}

func FuzzDecodeSubmission(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"name":"a","command":["x"],"batch_size":1,"ports":[{"node_port":30000,"container_port":1}],"env":{"A":"b"},"priority":0}`,
		`{"a":NaN}`, `{"batch_size":True,"x":-Infinity}`, `[`, `{"name":"\ud800"}`, `{"estimated_hours":-0.0,"env":{},"command":[]}`, `{"name":"a",,}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, reasons := DecodeSubmission(data)
		if len(reasons) > strict.MaxProblems+1 {
			t.Fatalf("%d reasons", len(reasons))
		}
		if len(reasons) > 0 {
			for _, r := range reasons {
				if r.Code == "" || r.Message == "" {
					t.Fatalf("empty reason %+v", r)
				}
			}
			return
		}
		if !json.Valid(data) {
			t.Fatal("accepted what is no JSON")
		}
		again, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > MaxBodyBytes {
			return // escapes may be longer than what they stand for
		}
		back, reasons := DecodeSubmission(again)
		if len(reasons) > 0 || !reflect.DeepEqual(spec, back) {
			t.Fatalf("%+v came back as %+v, reasons %v", spec, back, reasons)
		}
	})
}

func FuzzParseSubject(f *testing.F) {
	for _, seed := range []string{"yard.job.a.submitted.v1", "yard.job.a.b.c.v1", "yard..a.x.v1", "yard.job.-.x.v0", "yard.job.a.x.v+1", "yard.job.a.x.v01", "yard.job.a..v1", "yard.net.a=3Eb=2Ec.degraded.v1", "yard.job.a.x.v" + strings.Repeat("\a", 2400)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		subject, err := ParseSubject(s)
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if subject.String() != s {
			t.Fatalf("%q is read as %q", s, subject)
		}
	})
}

func TestSubjectsOfLinks(t *testing.T) {
	for subject, good := range map[string]bool{
		"yard.net.to-10-2-0-1.degraded.v1":                      true,
		"yard.net.leaf-1=3Espine=2F2.degraded.v1":               true,
		"yard.net." + strings.Repeat("a", 200) + ".degraded.v1": true,
		"yard.net." + strings.Repeat("a", 201) + ".degraded.v1": false,
		"yard.net.leaf-1>spine.degraded.v1":                     false,
		"yard.net..degraded.v1":                                 false,
		"yard.job.a=3Eb.submitted.v1":                           false,
	} {
		if _, err := ParseSubject(subject); (err == nil) != good {
			t.Errorf("%s: %v", subject, err)
		}
	}
}
