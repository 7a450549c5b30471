package strict

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// record has one field of each kind that readers use.
type record struct {
	Name   string             `json:"name"`
	Count  int64              `json:"count"`
	Small  uint8              `json:"small"`
	Ratio  float64            `json:"ratio"`
	On     bool               `json:"on"`
	When   *time.Time         `json:"when"`
	Words  []string           `json:"words"`
	Rates  map[string]float64 `json:"rates"`
	Inside []inside           `json:"inside"`
	Later  Node               `json:"later"`
	inside
}

type inside struct {
	Port int `json:"node_port"`
}

func read(t *testing.T, text string, o Options) (record, Problems) {
	t.Helper()
	var got record
	r := New(o)
	if root := r.Document([]byte(text)); root != nil {
		r.Bind(root, "", &got)
	}
	return got, r.Problems()
}

func TestBothLanguagesGiveTheSameValues(t *testing.T) {
	at := time.Date(2026, 1, 31, 18, 0, 0, 0, time.UTC)
	want := record{
		Name: "5 é😀", Count: 9007199254740993, Small: 16, Ratio: 1e-4, On: true, When: &at, Words: []string{"a", "b"},
		Rates: map[string]float64{"x": 2, "X": 3}, Inside: []inside{{1}}, inside: inside{7},
	}
	for _, text := range []string{
		"{\"name\": \"5 \\u00e9\\ud83d\\ude00\",\t\"count\": 9007199254740993, \"small\": 1.6e1, \"ratio\": 1e-4, \"on\": true, \"when\": \"2026-01-31T19:00:00+01:00\"," +
			`"words": ["a", "b"], "rates": {"x": 2, "X": 3}, "inside": [{"node_port": 1}], "node_port": 7}`,
		"name: 5 é😀\ncount: 9_007_199_254_740_993\nsmall: 0x10\nratio: 1e-4\non: True\nwhen: 2026-01-31T18:00:00Z\nwords: [a, 'b']\n" +
			"rates: {x: 2, X: 3.0}\ninside:\n- node_port: 1\nnode_port: 7\n",
	} {
		got, problems := read(t, text, Options{})
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(record{}, Node{})); diff != "" || problems != nil {
			t.Errorf("%s: %s %v", text, diff, problems)
		}
	}
}

func TestEveryProblemHasItsLineAndField(t *testing.T) {
	_, problems := read(t, `name: 5
count: 1.5
small: 300
ratio: .inf
on: "yes"
when: tomorrow
words: a b
rates: {a: 1, b: x, a: 2}
inside:
  - node_prot: 1
NAME: again
colour: red
node_port: 99999999999999999999
`, Options{})
	want := `line 1: name: want text, found 5 (put it in quotes: "5")
line 2: count: want a whole number, found 1.5
line 3: small: want a smaller number, found 300
line 4: ratio: want a finite number, found .inf
line 5: on: want true or false, found "yes"
line 6: when: want a time by RFC 3339, found "tomorrow" (write it as 2026-01-31T18:00:00Z)
line 7: words: want a list, found "a b" (write a list: ["python", "train.py"])
line 8: rates.b: want a number, found "x"
line 8: rates.a: given twice (keep one of them)
line 10: inside[0].node_prot: no such field (did you mean node_port?)
line 11: NAME: given twice: as "name" and as "NAME" (keep one of them)
line 12: colour: no such field
line 13: node_port: want a whole number of at most 2^53, found 99999999999999999999`
	if diff := cmp.Diff(want, problems.Error()); diff != "" {
		t.Error(diff)
	}
	for i := range problems {
		if problems[i].Column < 1 {
			t.Errorf("no column: %+v", problems[i])
		}
	}
}

func TestTextsThatAreNotRead(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "the file is empty",
		"a: [1":                        "line 1: neither JSON nor YAML: did not find expected",
		"a: &x 1\nb: *x":               "line 1: a: anchors (&x) are not read (leave it out)",
		"a: {<<: {b: 1}}":              "line 1: a: want a plain key",
		"{[1]: 2}":                     "want a plain key",
		"a: !!binary aGk=":             "the tag !!binary is not read",
		"a: !mine 1":                   "the tag !mine is not read",
		"a: 1\n---\nb: 2":              "want one document",
		"a: \xff":                      "the text is not UTF-8",
		strings.Repeat("[", 33) + "1":  "line 1",
		strings.Repeat("- ", 33) + "1": "nested deeper than 32 levels",
		strings.Repeat("a", 1001):      "the text has 1001 bytes, at most 1000 are read",
	} {
		_, problems := read(t, text, Options{MaxBytes: 1000})
		if len(problems) != 1 || !strings.Contains(problems.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, problems, want)
		}
	}
}

func TestTolerantReadersIgnoreWhatTheyDoNotKnow(t *testing.T) {
	got, problems := read(t, `{"Name": "a", "new": [1], "count": null, "rates": {"a": null, "b": 1}}`, Options{Tolerant: true})
	if problems != nil || got.Name != "a" || len(got.Rates) != 1 {
		t.Errorf("%+v %v", got, problems)
	}
	for _, text := range []string{`{"name": "a", "name": "b"}`, `{"count": "1"}`, `{"small": -1}`, `{"ratio": 1e999}`, `[]`, `"x"`} {
		if _, problems := read(t, text, Options{Tolerant: true}); len(problems) != 1 {
			t.Errorf("%s: %v", text, problems)
		}
	}
}

func TestEmptyListsAndObjects(t *testing.T) {
	for keep, want := range map[bool]record{false: {}, true: {Words: []string{}, Rates: map[string]float64{}}} {
		if got, problems := read(t, `{"words": [], "rates": {}}`, Options{KeepEmpty: keep}); problems != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("keep %v: %#v %v", keep, got, problems)
		}
	}
}

func TestReadingByHand(t *testing.T) {
	r := New(Options{})
	root := r.Document([]byte("kind: fats\nname: 010\nlist: {}\nn: 2.5\nm: 3\ncolour: 1\nmap: 3\n"))
	f := r.Object(root, "", "kind", "name", "list", "n", "m", "map", "none")
	if got := OneOf(r, f["kind"], "kind", "", []string{"fast", "slow"}); got != "fats" {
		t.Error(got)
	}
	if OneOf(r, f["none"], "none", "slow", []string{"fast", "slow"}) != "slow" || r.Scalar(f["name"], "name") != "010" || r.Whole(f["m"], "m", 1) != 3 || r.Number(f["n"], "n") != 2.5 {
		t.Error("values")
	}
	r.Whole(f["n"], "n", 1)
	r.Items(f["list"], "list")
	r.Entries(f["map"], "map")
	want := `line 1: kind: want fast, slow; found "fats" (did you mean fast?)
line 3: list: want a list, found an object
line 4: n: want a whole number of at least 1, found 2.5
line 6: colour: no such field
line 7: map: want an object, found 3`
	if diff := cmp.Diff(want, r.Problems().Error()); diff != "" {
		t.Error(diff)
	}
	if n := root.Find("list.x"); n != f["list"] {
		t.Errorf("found %v", n)
	}
}

// What is accepted is JSON, all JSON within the bounds is read, and the values are those of encoding/json.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[1, -0.5e+3, 01, 1., .5, 1e]`, `{"a":NaN}`, `{"a":True,"b":-Infinity,,}`, `[`, `{"name":"\ud800\n"}`, "\"\x01\"", `{"a" 1}`, `{"a":1}x`, `"\x"`, `nulls`, `[tru]`,
		`{"name":"a","count":12,"ratio":-0.0,"rates":{"a":1e300},"inside":[{"node_port":3}],"when":"2026-01-31T18:00:00Z"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := New(Options{Tolerant: true})
		root, ok := r.JSON(data)
		bounded := len(data) <= MaxBytes && utf8.Valid(data)
		if ok && r.Count() == 0 && !json.Valid(data) {
			t.Fatalf("accepted %q", data)
		}
		if !ok && bounded && json.Valid(data) && r.Problems()[0].Code != CodeTooDeep {
			t.Fatalf("refused %q: %v", data, r.Problems())
		}
		if !ok && len(r.Problems()) == 0 {
			t.Fatalf("refused %q without a problem", data)
		}
		if !ok {
			return
		}
		var ours, again record
		r.Bind(root, "", &ours)
		second := New(Options{Tolerant: true})
		if twin, _ := second.JSON(data); twin != nil {
			second.Bind(twin, "", &again)
		}
		if diff := cmp.Diff(r.Problems(), second.Problems()); diff != "" {
			t.Fatal(diff)
		}
		var theirs struct {
			Name  string             `json:"name"`
			Count int64              `json:"count"`
			Ratio float64            `json:"ratio"`
			Rates map[string]float64 `json:"rates"`
			Words []string           `json:"words"`
		}
		if r.Count() > 0 || json.Unmarshal(data, &theirs) != nil {
			return
		}
		for name, rate := range ours.Rates {
			if theirs.Rates[name] != rate {
				t.Fatalf("%q: %v, want %v", data, ours.Rates, theirs.Rates)
			}
		}
		if ours.Name != theirs.Name || ours.Count != theirs.Count || ours.Ratio != theirs.Ratio || len(ours.Words) != len(theirs.Words) {
			t.Fatalf("%q: %+v, want %+v", data, ours, theirs)
		}
	})
}

// Nothing that a text says makes the reader panic, and a number is never anything but finite.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{"a: &a [*a]", "a: {b: [1, .nan, 0x1F, 1_0]}", "- 2026-01-31\n- !!int x", "? [a]\n: b", "a: |\n  x\nb: >-\n  y", "%YAML 1.2\n---\na", "{\"a\":\t1}", "<<: {}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := New(Options{})
		root := r.Document(data)
		if (root == nil) != (r.Count() > 0) && root == nil {
			t.Fatalf("%q: no tree and no problem", data)
		}
		if root == nil {
			return
		}
		var got record
		r.Bind(root, "", &got)
		if math.IsNaN(got.Ratio) || math.IsInf(got.Ratio, 0) {
			t.Fatalf("%q: %v", data, got.Ratio)
		}
		if len(r.Problems()) > MaxProblems+1 {
			t.Fatalf("%d problems", len(r.Problems()))
		}
		var same record
		again := New(Options{})
		again.Bind(again.Document(data), "", &same)
		if !reflect.DeepEqual(got, same) || !reflect.DeepEqual(r.Problems(), again.Problems()) {
			t.Fatalf("%q is read differently the second time", data)
		}
	})
}
