package train

import (
	"encoding/json"
	"reflect"
	"testing"
	"unsafe"
)

// What a job says does not change when its strings are shared.
func TestSharedStringsAreEqual(t *testing.T) {
	record := `{"id": "a-1", "state": "queued", "reason": "Held", "message": "a person holds it", "blockers": [{"code": "Held", "message": "a person holds it"}, {"code": "Busy", "message": "no device"}],
		"spec": {"user": "ann", "work_dir": "/home/ann", "command": ["python3", "train.py"], "env": {"PATH": "/usr/bin:/bin"}, "array_member": {"array": "a", "index": 1, "count": 2}},
		"history": [{"fact": "submitted", "state": "submitted", "message": "waits to be admitted"}, {"fact": "queued", "state": "queued", "reason": "Held", "message": "a person holds it"}]}`
	var plain, one, other Job
	for _, j := range []*Job{&plain, &one, &other} {
		if err := json.Unmarshal([]byte(record), j); err != nil {
			t.Fatal(err)
		}
	}
	one.Share(nil)
	other.Share(&one)
	for _, shared := range []Job{one, other} {
		if !reflect.DeepEqual(plain, shared) {
			t.Errorf("%+v became %+v", plain, shared)
		}
		if cap(shared.Blockers) != 2 || cap(shared.History) != 2 {
			t.Errorf("there is room for %d reasons and %d changes", cap(shared.Blockers), cap(shared.History))
		}
	}
	one.Spec.Env["HOME"] = "/home/ann" // nobody does so: it shows whether there is one map
	if len(other.Spec.Env) != 2 || unsafe.SliceData(one.Spec.Command) != unsafe.SliceData(other.Spec.Command) {
		t.Error("the environment or the command is there twice")
	}
	for name, pair := range map[string][2]string{
		"a message":                {one.Message, one.Blockers[0].Message},
		"a message of the history": {one.Message, one.History[1].Message},
		"an environment":           {one.Spec.Env["PATH"], other.Spec.Env["PATH"]},
		"a user":                   {one.Spec.User, other.Spec.User},
	} {
		if unsafe.StringData(pair[0]) != unsafe.StringData(pair[1]) {
			t.Errorf("%s is there twice", name)
		}
	}
}
