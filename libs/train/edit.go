package train

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Edit is other values for keys of a job's spec, while the job lives.
type Edit struct {
	// Set has the keys that get a value. Labels and node labels are added to those of the job.
	Set Editable `json:"set,omitzero"`
	// Unset names the keys that lose their value, or single labels: deadline, labels.phase.
	Unset []string `json:"unset,omitempty"`
}

// Editable are the keys of a spec that may change. They mean what they mean in a submission.
type Editable struct {
	// Project, Labels, Priority, Deadline, TimeLimit, MaxRestarts, Retries, RestartSilent, Notify, EstimatedHours,
	// Devices, MinDevices and MaxDevices may change at any time. A job that runs on more or fewer devices than it then
	// wants leaves at its next save, to go on with the new number; more devices wait until they are free.
	Project        string            `json:"project,omitempty" while:"always"`
	Labels         map[string]string `json:"labels,omitempty" while:"always"`
	Priority       *int              `json:"priority,omitempty" while:"always"`
	Deadline       *time.Time        `json:"deadline,omitempty" while:"always"`
	TimeLimit      unit.Duration     `json:"time_limit,omitempty" while:"always"`
	MaxRestarts    *int              `json:"max_restarts,omitempty" while:"always"`
	Retries        *int              `json:"retries,omitempty" while:"always"`
	RestartSilent  bool              `json:"restart_silent,omitempty" while:"always"`
	Notify         []NotifySpec      `json:"notify,omitempty" while:"always"`
	EstimatedHours float64           `json:"estimated_hours,omitempty" while:"always"`
	Devices        int               `json:"devices,omitempty" while:"always"`
	MinDevices     int               `json:"min_devices,omitempty" while:"always"`
	MaxDevices     int               `json:"max_devices,omitempty" while:"always"`
	// Device, GPU, GPUMemory, EstimatedMemoryMiB, CPUs, Cores, Memory, MainMemoryMiB and NodeLabels may change while the
	// job waits: an attempt that runs keeps what it has.
	Device             DeviceKind        `json:"device,omitempty" while:"waiting"`
	GPU                string            `json:"gpu,omitempty" while:"waiting"`
	GPUMemory          string            `json:"gpu_memory,omitempty" while:"waiting"`
	EstimatedMemoryMiB int64             `json:"estimated_memory_mib,omitempty" while:"waiting"`
	CPUs               int               `json:"cpus,omitempty" while:"waiting"`
	Cores              int               `json:"cores,omitempty" while:"waiting"`
	Memory             string            `json:"memory,omitempty" while:"waiting"`
	MainMemoryMiB      int64             `json:"main_memory_mib,omitempty" while:"waiting"`
	NodeLabels         map[string]string `json:"node_labels,omitempty" while:"waiting"`
}

// EditableKey is a row of the table of keys that may change.
type EditableKey struct {
	Key string
	// Waiting is set if the key may change only while no attempt of the job runs.
	Waiting bool
	// Type is that of the key's values.
	Type reflect.Type
}

// EditableKeys returns the table, in the order of Editable, whose tag while says when.
func EditableKeys() []EditableKey {
	var all []EditableKey
	for f := range reflect.TypeFor[Editable]().Fields() {
		all = append(all, EditableKey{keyOf(f), f.Tag.Get("while") == "waiting", f.Type})
	}
	return all
}

func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return key
}

// Keys returns the keys that the edit sets or unsets, single labels as their map.
func (e Edit) Keys() []string {
	var keys []string
	set := reflect.ValueOf(e.Set)
	for f := range set.Type().Fields() {
		if !set.FieldByIndex(f.Index).IsZero() {
			keys = append(keys, keyOf(f))
		}
	}
	for _, name := range e.Unset {
		key, _, _ := strings.Cut(name, ".")
		keys = append(keys, key)
	}
	return keys
}

// Fixed returns the reason why a key of a spec never changes; nil if it may, or is no key.
func Fixed(key string) *Reason {
	isKey := func(t reflect.Type) bool {
		return slices.ContainsFunc(slices.Collect(t.Fields()), func(f reflect.StructField) bool { return keyOf(f) == key })
	}
	if isKey(reflect.TypeFor[Editable]()) || !isKey(reflect.TypeFor[Spec]()) {
		return nil
	}
	why := "it belongs to the program and the training as they were submitted, and checkpoints and predictions rest on it"
	switch key {
	case "user", "tenant":
		why = "it comes from the identity of the submitter"
	case "name", "family":
		why = "folders and predictions of the job are found by it"
	case "after":
		why = "jobs could come to wait for each other"
	}
	return &Reason{Code: "Fixed", Field: key, Message: "does not change once the job is submitted: " + why, Hint: "submit another job"}
}

// longForms returns the keys for which a key of a spec stands.
func longForms(key string) []string {
	switch key {
	case "devices":
		return []string{"min_devices", "max_devices"}
	case "gpu_memory":
		return []string{"estimated_memory_mib"}
	case "cpus":
		return []string{"cores"}
	case "memory":
		return []string{"main_memory_mib"}
	}
	return nil
}

// superseded returns the keys of the spec that no longer count once others are set. The strategy `none` means one
// device, and follows from the number of devices again.
func (s Spec) superseded(by Editable, set map[string]any) []string {
	var gone []string
	if s.Strategy == StrategyNone && max(by.Devices, by.MinDevices, by.MaxDevices) > 1 {
		gone = append(gone, "strategy")
	}
	for key := range set {
		gone = append(gone, longForms(key)...)
	}
	return gone
}

// Edited returns the spec after an edit, without defaults for what was unset. The values are not checked.
func (s Spec) Edited(e Edit) (Spec, error) {
	keys, err := object(s)
	if err != nil {
		return s, err
	}
	set, err := object(e.Set)
	if err != nil {
		return s, err
	}
	// Before any value is set: a job that says the same in two ways is refused.
	for _, gone := range s.superseded(e.Set, set) {
		delete(keys, gone)
	}
	for key, value := range set {
		more, isMap := value.(map[string]any)
		if has, is := keys[key].(map[string]any); is && isMap {
			maps.Copy(has, more)
			continue
		}
		keys[key] = value
	}
	for _, name := range e.Unset {
		key, label, single := strings.Cut(name, ".")
		if has, is := keys[key].(map[string]any); single && is {
			if delete(has, label); len(has) > 0 {
				continue
			}
		}
		for _, gone := range append(longForms(key), key) {
			delete(keys, gone)
		}
	}
	data, err := json.Marshal(keys)
	if err != nil {
		return s, fmt.Errorf("encode the changed spec: %w", err)
	}
	var next Spec
	if err := json.Unmarshal(data, &next); err != nil {
		return s, fmt.Errorf("read the changed spec: %w", err)
	}
	return next, nil
}

// object returns a value as its JSON object. Numbers keep their digits.
func object(value any) (map[string]any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", value, err)
	}
	keys := map[string]any{}
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	if err := d.Decode(&keys); err != nil {
		return nil, fmt.Errorf("read %T: %w", value, err)
	}
	return keys, nil
}

// KeyEdit is a key of a spec that got another value.
type KeyEdit struct {
	// Key is in the job before and after the edit with the values Before and After, as JSON; what was left out is empty.
	Key    string `json:"key"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Differences returns the keys in which two specs differ.
func Differences(before, after Spec) []KeyEdit {
	var all []KeyEdit
	x, y := reflect.ValueOf(before), reflect.ValueOf(after)
	for f := range x.Type().Fields() {
		a, b := x.FieldByIndex(f.Index), y.FieldByIndex(f.Index)
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			all = append(all, KeyEdit{keyOf(f), written(a), written(b)})
		}
	}
	return all
}

func written(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	data, _ := json.Marshal(v.Interface()) // it came from JSON
	return string(data)
}

// Edited is a request to change a job's spec, and what became of it.
type Edited struct {
	At time.Time `json:"at"`
	// Request is the stream sequence of the request, ID its sender's own word for it.
	Request uint64 `json:"request"`
	ID      string `json:"id,omitempty"`
	By      string `json:"by,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Keys are the keys that got another value.
	Keys []KeyEdit `json:"keys,omitempty"`
	// Refused is why the spec stayed as it was.
	Refused []Reason `json:"refused,omitempty"`
}

// EditBy returns the newest request with a sender's word for it, if the record has it.
func (j Job) EditBy(id string) (Edited, bool) {
	for _, c := range slices.Backward(j.Edits) {
		if c.ID == id {
			return c, true
		}
	}
	return Edited{}, false
}
