package network

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// probed has four nodes on two leaves probe each other over two spines; of the links with names of a topology's file
// one is lossy, one slow.
func probed(t *testing.T, s *clitest.Terminal) {
	t.Helper()
	leaf := map[string]string{"a": "l1", "b": "l1", "c": "l2", "d": "l2"}
	for from := range leaf {
		list := train.Pinglist{Key: []byte("key")}
		for to := range leaf {
			for _, spine := range []string{"s1", "s2"} {
				links := []string{from + "=3E" + leaf[from], leaf[from] + "=3E" + spine, spine + "=3E" + leaf[to], leaf[to] + "=3E" + to}
				switch {
				case from == to:
					continue
				case leaf[from] == leaf[to]:
					links = []string{links[0], links[3]}
				}
				list.Probes = append(list.Probes, train.Flow{From: train.NodeID(from), To: train.NodeID(to), Links: links})
			}
		}
		clitest.Put(t, s.Bus, contract.Probes, from, list)
	}
	since := time.Now().Add(-time.Minute)
	for _, l := range []train.Link{
		{ID: "l1=3Es1", Kind: train.LinkLoses, Loss: 0.07, Confidence: 1, Degraded: true, Since: since},
		{ID: "l2=3Ed", Kind: train.LinkIsSlow, DelaySeconds: 0.012, Confidence: 0.9, Degraded: true, Since: since},
		{ID: "s2=3El2", Kind: train.LinkIsSlow, DelaySeconds: 0.003, Since: since},
	} {
		clitest.Put(t, s.Bus, contract.Links, l.ID, l)
	}
}

func TestTheLiveNetworkIsDrawn(t *testing.T) {
	s := clitest.New(t, Command)
	probed(t, s)
	dir := t.TempDir()
	file := filepath.Join(dir, "yard.yaml")
	text := "spines: [s1, s2, s3]\nnodes: [{name: a, rack: l1}, {name: b, rack: l1}, {name: c, rack: l2}, {name: d, rack: l2}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args                     []string
		red, orange, green, grey int
	}{
		"of a file":       {[]string{"--topology", file}, 1, 1, 6, 2}, // s3 is not probed
		"of what is seen": {nil, 1, 1, 6, 0},
	} {
		picture := filepath.Join(dir, "now.svg")
		code, out, errs := s.Run(append([]string{"net", "topology", "--live", "--svg", picture, "-o", "json"}, c.args...)...)
		if code != exit.OK {
			t.Fatalf("%s: exit %d: %s", name, code, errs)
		}
		var got netTopology
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		svg, err := os.ReadFile(picture)
		if err != nil {
			t.Fatal(err)
		}
		count := func(colour string) int {
			return len(regexp.MustCompile(`stroke="`+colour+`"[^>]*><title>`).FindAllString(string(svg), -1))
		}
		if r, o, g, n := count("#dc2626"), count("#f97316"), count("#16a34a"), count("#bbbbbb"); r != c.red || o != c.orange || g != c.green || n != c.grey || len(got.Links) != r+o+g+n {
			t.Errorf("%s: %d red, %d orange, %d green, %d grey of %d links, want %+v", name, r, o, g, n, len(got.Links), c)
		}
		if !strings.Contains(string(svg), "7 % lost") || !strings.Contains(string(svg), "12 ms slow") {
			t.Errorf("%s: the picture does not say what is wrong", name)
		}
		if i := slices.IndexFunc(got.Vertices, func(v netVertex) bool { return v.Name == "s1" }); i < 0 || got.Vertices[i].Tier != fabric.Spine {
			t.Errorf("%s: vertices %+v", name, got.Vertices)
		}
	}
}

func TestADegradedLinkOutsideTheDrawingIsNamed(t *testing.T) {
	s := clitest.New(t, Command)
	probed(t, s)
	clitest.Put(t, s.Bus, contract.Links, "10-0-0-1=3E10-0-1-1", train.Link{ID: "10-0-0-1=3E10-0-1-1", Kind: train.LinkLoses, Loss: 0.2, Degraded: true})
	file := filepath.Join(t.TempDir(), "yard.yaml")
	if err := os.WriteFile(file, []byte("spines: [s1, s2]\nnodes: [{name: a, rack: l1}, {name: c, rack: l2}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs := s.Run("net", "topology", "--live", "--topology", file)
	if code != exit.OK || !strings.Contains(errs, "link 10-0-0-1=3E10-0-1-1, which loses 20 %") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if code, _, errs := s.Run("net", "topology", "--topology", file, "--loss", "l1=3Es9=0.5"); code != exit.Usage || !strings.Contains(errs, "no such link") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestNetStatusTellsLossyFromSlow(t *testing.T) {
	s := clitest.New(t, Command)
	probed(t, s)
	code, out, errs := s.Run("net", "status")
	if code != exit.OK {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{`l1=3Es1 +lossy +7.00 % +- +100 %`, `l2=3Ed +slow +- +12 ms +90 %`, `s2=3El2 +recovered +- +- +-`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}

func TestTheLiveNetworkNeedsProbes(t *testing.T) {
	s := clitest.New(t, Command)
	if code, _, errs := s.Run("net", "topology", "--live"); code != exit.Failed || !strings.Contains(errs, "no path of the network is probed") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if code, _, errs := s.Run("net", "topology"); code != exit.Usage || !strings.Contains(errs, "--live") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
