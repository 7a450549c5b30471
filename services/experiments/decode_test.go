package experiments

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
)

const submitted = `
name: lr
job: {name: lr, command: [train, "${lr}"], batch_size: 8, training_set_size: 64, max_epochs: 3}
space: {lr: {log_uniform: [1e-4, 0.1]}, optimizer: [sgd, 5], momentum: {uniform: [0, 0.9], when: {optimizer: [sgd]}}}
objective: {metric: accuracy/time}
constraints: [{metric: memory, max: 4096}]
search: {algorithm: random, trials: 4, seed: 18446744}
`

// body is an experiment file as `switchyard tune run` submits it.
func body(tb testing.TB, text string) []byte {
	tb.Helper()
	e, err := file.Parse([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	data, err := json.Marshal(e)
	if err != nil {
		tb.Fatal(err)
	}
	data, err = json.Marshal(event.ExperimentSubmitted{Experiment: data})
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestASubmittedExperimentIsReadAsTheFile(t *testing.T) {
	want, err := file.Parse([]byte(submitted))
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeExperiment("lr", body(t, submitted))
	if err != nil || !reflect.DeepEqual(want, got) {
		t.Errorf("%+v\n%+v, error %v", want, got, err)
	}
	for _, tc := range []struct{ old, with, words string }{
		{`"concurrency"`, `"concurency"`, "concurency: no such field (did you mean concurrency?)"},
		{`"mode"`, `"mode":"v1","mode"`, "mode: given twice"},
		{`"concurrency":1`, `"concurrency":"2"`, `concurrency: want a whole number, found "2"`},
	} {
		_, err := decodeExperiment("lr", []byte(strings.Replace(string(body(t, submitted)), tc.old, tc.with, 1)))
		if err == nil || !strings.Contains(err.Error(), tc.words) {
			t.Errorf("%s: %v, want %s", tc.with, err, tc.words)
		}
	}
}

// Without names, costs say that no parameter changes the cost of an epoch; left out, they leave that to a rule.
func TestEmptyCostsOfASubmittedExperimentAreKept(t *testing.T) {
	for costs, want := range map[string][]string{"": nil, "costs: []": {}, "costs: [lr]": {"lr"}} {
		got, err := decodeExperiment("lr", body(t, submitted+costs))
		if err != nil || !reflect.DeepEqual(got.Costs, want) {
			t.Errorf("%q: %#v, want %#v, error %v", costs, got.Costs, want, err)
		}
	}
}

func FuzzDecodeExperiment(f *testing.F) {
	f.Add(body(f, submitted))
	f.Add([]byte(`{"experiment":{"name":1,"name":2}}`))
	f.Add([]byte(`{"experiment":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodeExperiment("id", data)
		again, other := decodeExperiment("id", data)
		if (err == nil) != (other == nil) || err == nil && !reflect.DeepEqual(e, again) {
			t.Fatalf("%v, then %v", err, other)
		}
		var plain event.ExperimentSubmitted
		var theirs file.Experiment
		if err == nil && (json.Unmarshal(data, &plain) != nil || json.Unmarshal(plain.Experiment, &theirs) != nil || !reflect.DeepEqual(e, theirs)) {
			t.Fatalf("%+v, encoding/json reads %+v", e, theirs)
		}
	})
}
