package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// call runs a command without a bus.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	code = Main(append([]string{"switchyard"}, args...), strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func TestNetPlan(t *testing.T) {
	yard := filepath.Join(t.TempDir(), "yard.yaml")
	text := "spines: [s1, s2]\nracks: [l1, l2, l3]\nnodes: [{name: a, rack: l1}, {name: b, rack: l2}, {name: c, rack: l3}]\n"
	if err := os.WriteFile(yard, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want map[string]any // what the object holds besides the seconds
	}{
		{[]string{"--topology", "fattree:8"}, map[string]any{"links": 256.0, "candidates": 7168.0, "paths": 128.0, "alpha_min": 2.0, "beta": 1.0}},
		{[]string{"--topology", "fattree:8", "--directed"}, map[string]any{"links": 512.0, "candidates": 14336.0, "paths": 256.0, "alpha_min": 2.0, "beta": 1.0}},
		{[]string{"--topology", "bcube:4,2", "--beta", "0", "--alpha", "1"}, map[string]any{"links": 192.0, "candidates": 12096.0, "alpha_min": 1.0, "beta": 0.0}},
		// Over l1 -> s1 lead two ways only, to b and to c.
		{[]string{"--topology", yard, "--directed", "--alpha", "3"}, map[string]any{"links": 18.0, "candidates": 12.0, "alpha_min": 2.0, "beta": 1.0}},
	} {
		code, out, errs := call(t, append([]string{"net", "plan", "-o", "json"}, c.args...)...)
		if code != ExitOK {
			t.Fatalf("%v: exit %d: %s", c.args, code, errs)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if len(got) != 6 || got["seconds"].(float64) <= 0 {
			t.Errorf("%v: %s", c.args, out)
		}
		for key, want := range c.want {
			if got[key] != want {
				t.Errorf("%v: %s is %v, want %v", c.args, key, got[key], want)
			}
		}
	}
}

func TestNetSimulate(t *testing.T) {
	args := []string{"net", "simulate", "--topology", "fattree:8", "--alpha", "3", "--beta", "2", "--failures", "1..3,9", "--runs", "20", "--seed", "7", "-o", "json"}
	code, out, errs := call(t, args...)
	if code != ExitOK {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var trials []map[string]float64
	if err := json.Unmarshal([]byte(out), &trials); err != nil {
		t.Fatal(err)
	}
	var failures []float64
	for _, trial := range trials {
		failures = append(failures, trial["failures"])
		if len(trial) != 5 || trial["accuracy"] < 0.95 || trial["false_positive_ratio"] > 0.02 || trial["accuracy"]+trial["false_negative_ratio"] != 1 || trial["localise_seconds"] <= 0 {
			t.Errorf("%v", trial)
		}
		delete(trial, "localise_seconds")
	}
	if !slices.Equal(failures, []float64{1, 2, 3, 9}) {
		t.Errorf("failures %v", failures)
	}
	first := fmt.Sprint(trials)
	_, out, _ = call(t, args...)
	if err := json.Unmarshal([]byte(out), &trials); err != nil {
		t.Fatal(err)
	}
	for _, trial := range trials {
		delete(trial, "localise_seconds")
	}
	if again := fmt.Sprint(trials); again != first {
		t.Errorf("the same seed gave\n%s, then\n%s", first, again)
	}
}

func TestNetTopology(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "net.svg")
	code, out, errs := call(t, "net", "topology", "--topology", "fattree:4", "--svg", picture, "--loss", "agg-0-0=7Erack-0-0=0.02", "-o", "json")
	if code != ExitOK {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var got netTopology
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Links) != 32 || len(got.Vertices) != 20 || got.Links[0] != (netLink{"agg-0-0=7Erack-0-0", "rack-0-0", "agg-0-0"}) {
		t.Errorf("%d links, %d vertices, first %+v", len(got.Links), len(got.Vertices), got.Links[0])
	}
	svg, err := os.ReadFile(picture)
	if err != nil || !strings.Contains(string(svg), "rack-0-0 - agg-0-0: 2 % lost") {
		t.Errorf("the picture does not show the loss (%v)", err)
	}
}

// Nodes that ail are shown beside the links, and how old the verdict is.
func TestNetStatusShowsNodesThatAil(t *testing.T) {
	s := newTerminal(t)
	for node, to := range map[string]train.NodeID{"a": "b", "b": "a"} {
		put(t, s.bus, event.BucketProbes, node, train.Pinglist{Probes: []train.Flow{{From: train.NodeID(node), To: to, Links: []string{"from-" + node, "to-" + string(to)}}}})
	}
	if _, out, _ := s.run("net", "status"); out != "2 nodes probe 2 paths over 4 links, none was judged lately\nno link loses or delays packets\n" {
		t.Errorf("before a window was judged:\n%s", out)
	}
	judge := func(slot int64, ailing ...train.AilingNode) {
		publish(t, s.bus, event.Fact{
			Subject: event.JudgedSubject(0), Key: fmt.Sprint(slot), Source: "profiler",
			Body: event.LinksJudged{Slot: slot, Links: []train.LinkWindow{}, Ailing: ailing},
		})
	}
	slot := noon.Unix()/10 - 2
	judge(slot, train.AilingNode{Node: "a", Why: train.NodeIsSilent}, train.AilingNode{Node: "b", Why: train.NodeHasClockSkew, BehindSeconds: -40})
	status, err := readNetStatus(t.Context(), s.bus, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.printNetStatus(status, noon); err != nil {
		t.Fatal(err)
	}
	out, _ := s.printed()
	for _, want := range []string{"over 4 links, judged 10s ago", "a Silent does not tell what it sent or received", "b ClockSkew its clock is 40 s ahead of others"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("want %q:\n%s", want, out)
		}
	}
	_, text, _ := s.run("net", "status", "-o", "json")
	if got := parse[netStatus](t, text); len(got.Ailing) != 2 || got.Ailing[1] != status.Ailing[1] || !got.JudgedAt.Equal(ago(10*time.Second)) {
		t.Errorf("%s", text)
	}
	judge(slot + 1)
	if _, text, _ := s.run("net", "status", "-o", "json"); !strings.Contains(text, `"ailing": []`) {
		t.Errorf("when they are well again: %s", text)
	}
}

func TestNetRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"plan"},
		{"plan", "--topology", "fattree:5"},
		{"plan", "--topology", "no-such-file.yaml"},
		{"plan", "--topology", "fattree:4", "--alpha", "0"},
		{"plan", "--topology", "fattree:4", "--beta", "4"},
		{"simulate", "--topology", "fattree:4", "--failures", "3..1"},
		{"simulate", "--topology", "fattree:4", "--failures", "1,,2"},
		{"simulate", "--topology", "fattree:4", "--runs", "0"},
		{"topology", "--topology", "fattree:4", "--svg", "x.svg", "--loss", "link"},
	} {
		if code, _, errs := call(t, append([]string{"net"}, args...)...); code != ExitUsage || errs == "" {
			t.Errorf("%v: exit %d, %q", args, code, errs)
		}
	}
}
