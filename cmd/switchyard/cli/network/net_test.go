package network

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

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
		code, out, errs := clitest.Execute([]console.Command{Command}, "", append([]string{"net", "plan", "-o", "json"}, c.args...)...)
		if code != exit.OK {
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

func TestNetTopology(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "net.svg")
	code, out, errs := clitest.Execute([]console.Command{Command}, "", "net", "topology", "--topology", "fattree:4", "--svg", picture, "--loss", "agg-0-0=7Erack-0-0=0.02", "-o", "json")
	if code != exit.OK {
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
	s := clitest.New(t, Command)
	for node, to := range map[string]train.NodeID{"a": "b", "b": "a"} {
		clitest.Put(t, s.Bus, contract.Probes, node, train.Pinglist{Probes: []train.Flow{{From: train.NodeID(node), To: to, Links: []string{"from-" + node, "to-" + string(to)}}}})
	}
	if _, out, _ := s.Run("net", "status"); out != "2 nodes probe 2 paths over 4 links, no recent verdict\nno link loses or delays packets\n" {
		t.Errorf("before a window was judged:\n%s", out)
	}
	judge := func(slot int64, ailing ...train.UnhealthyNode) {
		clitest.Publish(t, s.Bus, event.Fact{
			Subject: event.JudgedSubject(0), Key: fmt.Sprint(slot), Source: "profiler",
			Body: event.LinksJudged{Slot: slot, Links: []train.LinkWindow{}, Ailing: ailing},
		})
	}
	slot := clitest.Noon.Unix()/10 - 2
	judge(slot, train.UnhealthyNode{Node: "a", Why: train.NodeIsSilent}, train.UnhealthyNode{Node: "b", Why: train.NodeHasClockSkew, BehindSeconds: -40})
	probed, err := s.Yard(clitest.Noon).Probed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	status := probed.Troubled()
	if err := printNetStatus(s.Console, status, clitest.Noon); err != nil {
		t.Fatal(err)
	}
	out, _ := s.Printed()
	for _, want := range []string{"over 4 links, judged 10s ago", "a Silent does not report its counts", "b ClockSkew its clock is 40 s ahead of others"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("want %q:\n%s", want, out)
		}
	}
	_, text, _ := s.Run("net", "status", "-o", "json")
	if got := clitest.Parse[view.NetStatus](t, text); len(got.Ailing) != 2 || got.Ailing[1] != status.Ailing[1] || !got.JudgedAt.Equal(clitest.Ago(10*time.Second)) {
		t.Errorf("%s", text)
	}
	judge(slot + 1)
	if _, text, _ := s.Run("net", "status", "-o", "json"); !strings.Contains(text, `"ailing": []`) {
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
		if code, _, errs := clitest.Execute([]console.Command{Command}, "", append([]string{"net"}, args...)...); code != exit.Usage || errs == "" {
			t.Errorf("%v: exit %d, %q", args, code, errs)
		}
	}
}
