package plan

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// unread are the fields of a state whose change is no news: no phase reads them, or only through an answer that the
// fingerprint has (TestAnswersAreNews).
var unread = map[string]string{
	"Spec.Shell": "of the attempt", "Spec.UID": "of the attempt", "Spec.SecretEnv": "read where the job starts",
	"Now": "its answers count", "Rates": "who is deferred counts", "EnergyQuotas": "likewise", "Shares": "overuse counts", "Balances": "likewise", ".Memory": "has the fingerprint", "Seed": "for random searches",
	"Running": "what may be done with the attempt counts", "CancelRequested": "takes the job out", "Withheld": "likewise", "RecentRestarts": "whether it may move counts",
	"RunSeconds": "whether it starves counts", "DeviceSeconds": "grows with time", "Done": "grows with time", "Restarts": "follows plans", "Beside": "of guests only",
	"Parts": "instead of node and devices", "FoundAt": "whether it still counts does",
	"Message": "words", "Hint": "words", "Field": "", "Until": "an exclusion that has ended is left out",
	"Packets": "", "SeenAt": "", "Owner": "", "Backend": "of a node for good", "Machine": "likewise", "BootID": "", "ContainerRuntime": "", "JobAPI": "", "JobAPISocket": "", "MPSDir": "", "Meters": "",
	"MeterTroubles": "", "DiskTrouble": "the executor starts nothing", "Probes": "", "ReportsWaiting": "the executor waits for them", "HeldBy": "an exclusion says it", "Pods": "likewise, or a job", "UUID": "", "Core": "", "Resource": "", "Devices.Class": "", "Nodes.Version": "", "Name": "", "User": "", "ScriptPath": "", "Image": "", "WorkDir": "",
	"CustomDir": "", "SnapshotsDir": "", "DatasetsDir": "", "DataURL": "", "Env": "", "LogFormat": "", "TuneEffectiveBatch": "",
	"Spec.Devices": "admission expands it", "GPUMemory": "admission expands it", "CPUs": "", "Spec.Memory": "", "Ports": "", "Spec.Priority": "", "Launch": "", "MaxRestarts": "", "Notify": "", "Retries": "", "RestartSilent": "", "Spec.Checkpoint": "", "Spec.Preempt": "", "Spec.Progress": "", "Spec.Upload": "", "Spec.Project": "", "Spec.Labels": "", "OK": "jobs that it still waits for are deferred", "Any": "", "Failed": "", "Command": "counts for jobs that share",
	"Spec.Array": "an array takes no part", "ArrayMember": "jobs over its limit are deferred",
	"Behind": "not weighed", "Resized": "words; the size it wants is news", "Continue": "the executor copies the checkpoints",
}

// TestEveryFieldIsNews: whichever field of a state changes, the next decision sees that there is news.
func TestEveryFieldIsNews(t *testing.T) {
	before := fingerprintOf(fullState())
	state := fullState()
	var paths []string
	leaves(reflect.ValueOf(&state).Elem(), "", func(path string, _ reflect.Value) { paths = append(paths, path) })
	if len(paths) < 150 {
		t.Fatalf("only %d fields", len(paths))
	}
	for at, path := range paths {
		s, i := fullState(), 0
		leaves(reflect.ValueOf(&s).Elem(), "", func(_ string, leaf reflect.Value) {
			if i == at {
				change(leaf)
			}
			i++
		})
		if fingerprintOf(s) == before && !isUnread(path) {
			t.Errorf("%s: no news", path)
		}
	}
}

// TestAnswersAreNews: a time that passes a bound is news, and one that passes none is not.
func TestAnswersAreNews(t *testing.T) {
	start := fullState()
	start.Jobs[0].RunSeconds, start.Tuning.StarvationSeconds = 0, 3600
	start.Jobs[0].SubmittedAt = start.Now
	deadline := start.Now.Add(2 * time.Hour)
	start.Jobs[0].Spec.Deadline = &deadline
	after := func(d time.Duration) uint64 {
		s := start
		s.Now = s.Now.Add(d)
		return fingerprintOf(s)
	}
	if after(0) != after(30*time.Minute) {
		t.Error("half an hour is news")
	}
	if after(30*time.Minute) == after(70*time.Minute) {
		t.Error("starvation is no news")
	}
	if after(70*time.Minute) == after(130*time.Minute) {
		t.Error("a missed deadline is no news")
	}
}

func fingerprintOf(s State) uint64 {
	d := newDecision(&s, Switchyard{})
	d.queue()
	d.classify()
	d.constrain()
	return d.fingerprint(d.planned)
}

// fullState has one of everything, and every field set.
func fullState() State {
	var s State
	fill(reflect.ValueOf(&s).Elem())
	now := time.Unix(100_000, 0)
	s.Now, s.Rates, s.Interference = now, nil, map[string]*curve.Interference{"gpu": curve.NewInterference("", nil)}
	n, j := &s.Nodes[0], &s.Jobs[0]
	n.ID, n.Devices[0].ID = "a", "gpu:0"
	j.SubmittedAt, j.CancelRequested, j.Withheld, j.Spec.Deadline = now, false, nil, &now
	j.Spec.Device, j.Spec.GPU = "gpu", n.Devices[0].Model
	j.Slow[0].FoundAt = now
	j.Planned.Node, j.Planned.Devices, j.Planned.Parts = "a", []train.DeviceID{"gpu:0"}, nil
	j.Planned.Servers[0].Node = "a"
	j.Running, j.Awaits = nil, nil // a job that waits for others takes no part
	return s
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				fill(field)
			}
		}
	default:
		change(v)
	}
}

// leaves visits all fields that have no fields themselves. A value of a map is one of them.
func leaves(v reflect.Value, path string, visit func(path string, leaf reflect.Value)) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]() || v.Kind() == reflect.Map:
		visit(path, v)
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			leaves(v.Elem(), path, visit)
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			leaves(v.Index(i), path, visit)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			leaves(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	case v.Kind() != reflect.Func:
		visit(path, v)
	}
}

func change(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(v.Int() + 1)
	case reflect.Uint64, reflect.Uint8:
		v.SetUint(v.Uint() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 0.25)
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Struct:
		v.Set(reflect.ValueOf(v.Interface().(time.Time).Add(-time.Hour)))
	default: // functions
	}
}

func isUnread(path string) bool {
	if _, whole := unread[path]; whole {
		return true
	}
	names := strings.Split(strings.TrimPrefix(path, "."), ".")
	for i, name := range names {
		_, alone := unread[name]
		_, within := unread[strings.Join(names[max(i-1, 0):i+1], ".")]
		if alone || within {
			return true
		}
	}
	return false
}
