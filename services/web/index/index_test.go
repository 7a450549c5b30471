package index_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

func jobs(x *index.Index) map[string]train.State {
	found := map[string]train.State{}
	for key, j := range x.Jobs.All() {
		found[key] = j.State
	}
	return found
}

// The index depends on what was put and not on the order or on repetitions.
func TestTheNewestRevisionStands(t *testing.T) {
	type put struct {
		key      string
		revision uint64
		value    string
	}
	rapid.Check(t, func(t *rapid.T) {
		puts, want := []put{}, map[string]train.State{}
		for i := range rapid.IntRange(1, 30).Draw(t, "puts") {
			p := put{key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"), revision: uint64(i + 1)}
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				delete(want, p.key)
			case 1:
				p.value = `{"state":7`
				delete(want, p.key)
			default:
				state := train.State(fmt.Sprint("state ", i))
				p.value, want[p.key] = fmt.Sprintf(`{"id":%q,"state":%q}`, p.key, state), state
			}
			puts = append(puts, p)
		}
		x := index.New()
		for _, p := range append(rapid.Permutation(puts).Draw(t, "order"), puts...) {
			changed, err := x.Jobs.Put(p.key, p.revision, []byte(p.value))
			if err != nil && p.value != `{"state":7` {
				t.Fatal(err)
			}
			if again, _ := x.Jobs.Put(p.key, p.revision, []byte(p.value)); again {
				t.Fatalf("a repetition of %v changed something (before: %v)", p, changed)
			}
		}
		if diff := cmp.Diff(want, jobs(x)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// A deletion that was missed shows when the list is read again.
func TestAListForgetsWhatIsGone(t *testing.T) {
	x := index.New()
	put := func(revision uint64, keys ...string) {
		for _, key := range keys {
			if _, err := x.Jobs.Put(key, revision, []byte(`{"id":"`+key+`","state":"queued"}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(1, "a", "b")
	if gone := x.Jobs.Listed(); gone != nil {
		t.Fatalf("the first list forgets %v", gone)
	}
	put(2, "c")
	put(1, "a")
	if gone := x.Jobs.Listed(); len(gone) != 1 || gone[0] != "b" {
		t.Errorf("forgotten: %v, want b", gone)
	}
	if diff := cmp.Diff(map[string]train.State{"a": "queued", "c": "queued"}, maps.Collect(maps.All(jobs(x)))); diff != "" {
		t.Error(diff)
	}
}

func TestATableTakesItsKeysAlone(t *testing.T) {
	x := index.New()
	for _, key := range []string{"job.a", "node.n1", "course.a"} {
		if _, err := x.Accounts.Put(key, 1, []byte(`{"job":"a","seconds":3}`)); err != nil {
			t.Fatal(err)
		}
	}
	count := 0
	for range x.Accounts.All() {
		count++
	}
	if a := x.Accounts.Get("a"); a == nil || a.Seconds != 3 || count != 1 {
		t.Errorf("%+v of %d", a, count)
	}
}

// A table that decodes late returns what others do: the newest revision, and nothing for a value that cannot be read.
func TestWhatWasMeasuredIsDecodedLate(t *testing.T) {
	x := index.New()
	put := func(revision uint64, key, value string) {
		if _, err := x.Power.Put(key, revision, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	put(1, "a", `{"node":"a","sequence":1}`)
	put(3, "a", `{"node":"a","sequence":3}`)
	put(2, "a", `{"node":"a","sequence":2}`)
	put(4, "b", `{"node":7`)
	put(5, "c", `{"node":"c"}`)
	put(6, "c", "")
	got := map[string]uint64{}
	for key, m := range x.Power.All() {
		got[key] = m.Sequence
	}
	if diff := cmp.Diff(map[string]uint64{"a": 3}, got); diff != "" {
		t.Error(diff)
	}
	if m := x.Power.Get("b"); m != nil {
		t.Errorf("read %+v from rubbish", m)
	}
}
