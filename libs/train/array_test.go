package train_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestParseArray(t *testing.T) {
	for text, want := range map[string]train.Array{
		"0-3":        {Indices: []int{0, 1, 2, 3}},
		"0-9:4%2":    {Indices: []int{0, 4, 8}, AtOnce: 2},
		"7,1-2,2,40": {Indices: []int{1, 2, 7, 40}},
		"5":          {Indices: []int{5}},
	} {
		got, err := train.ParseArray(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
	for text, want := range map[string]string{
		"":                      `want indices like 0-9, 0-99:10 or 1,3,7, and %4 behind them for four jobs at once; found ""`,
		"1-":                    `found "1-"`,
		"-1":                    `found "-1"`,
		"a":                     `found "a"`,
		"1:2":                   `found "1:2"`,
		"0-9:0":                 `found "0-9:0"`,
		"0-9%0":                 `found "%0"`,
		"0-9%":                  `found "%"`,
		"5-1":                   `"5-1" ends before it begins`,
		"0-1000000":             "more than 100000 jobs",
		"0-99999,100000":        "more than 100000 jobs",
		"0-99999999999":         `found "0-99999999999"`,
		"0-2147483647":          "more than 100000 jobs",
		"0-9," + "1,2,3,4,5,6,": `found ""`,
	} {
		if _, err := train.ParseArray(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestHowAnArrayEnds(t *testing.T) {
	for want, ended := range map[train.State][]train.State{
		train.StateSucceeded: {train.StateSucceeded, train.StateSucceeded},
		train.StateFailed:    {train.StateSucceeded, train.StateRejected, train.StateCancelled},
		train.StateCancelled: {train.StateSucceeded, train.StateCancelled},
	} {
		job := train.Job{ID: "a", Spec: train.Spec{Array: "0-2"}, Ended: map[train.JobID]train.State{}}
		for i, s := range ended {
			job.Ended[train.MemberID("a", i)] = s
		}
		if got := job.ArrayEnd(); got != want {
			t.Errorf("%v: %s, want %s", ended, got, want)
		}
	}
}
