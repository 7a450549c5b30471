package net

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// namedWithin is the time in which a link must be named after its first lost packet.
const namedWithin = time.Minute

// number reads a setting of a run from the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// until waits for a condition; holds also describes the progress.
func until(t *testing.T, within time.Duration, holds func() (bool, string)) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(within)
	for {
		ok, what := holds()
		if ok {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("after %v: %s", within, what)
		case <-tick.C:
		}
	}
}

// awaitPaths waits until every link is on the path of some probe.
func (c *cluster) awaitPaths() {
	c.t.Helper()
	lists, err := bus.OpenKV[train.Pinglist](c.t.Context(), c.bus, contract.Probes)
	if err != nil {
		c.t.Fatal(err)
	}
	began := time.Now()
	until(c.t, 2*time.Minute, func() (bool, string) {
		entries, err := lists.List(c.t.Context())
		if err != nil {
			return false, err.Error()
		}
		covered, flows := map[string]int{}, 0
		for _, e := range entries {
			flows += len(e.Value.Probes)
			for _, f := range e.Value.Probes {
				for _, l := range f.Links {
					covered[l]++
				}
			}
		}
		for _, k := range links() {
			if covered[c.id(k)] < 3 {
				return false, fmt.Sprintf("%s is on %d paths", c.id(k), covered[c.id(k)])
			}
		}
		c.t.Logf("%d flows cover %d links, found within %v", flows, len(covered), time.Since(began).Round(time.Second))
		return len(covered) == len(links()), fmt.Sprintf("%d links are covered, of %d", len(covered), len(links()))
	})
}

// turns collects the facts about links as they come.
type turns struct {
	mu  sync.Mutex
	all []string
}

func (c *cluster) followTurns() *turns {
	seen := &turns{}
	var following conc.WaitGroup
	following.Go(func() {
		_ = c.bus.Follow(c.t.Context(), event.StreamNet, nil, 1, func(m bus.Message) {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			fact, _ := event.Decode[event.LinkDegraded](m.Data)
			seen.all = append(seen.all,
				fmt.Sprintf("%s %s %s %.4f %.4f s", m.Parsed.ID, m.Parsed.Fact, fact.Link.Kind, fact.Link.Loss, fact.Link.DelaySeconds))
		})
	})
	c.t.Cleanup(following.Wait)
	return seen
}

// take empties the list.
func (s *turns) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// injury is a link and its loss.
type injury struct {
	link
	part float64
}

// injuries returns the faults of run n: in turn one link of each part, and pairs. It draws the links, except those of
// the run before, which have not recovered yet.
func injuries(n int, dice *rand.Rand, before []injury) []injury {
	parts := [][]float64{{0.01}, {0.02}, {0.05}, {0.2}, {1}, {0.01, 0.2}, {0.05, 0.05}, {0.02, 1}, {0.05, 0.2}, {1, 1}}
	all := slices.DeleteFunc(links(), func(k link) bool { return slices.ContainsFunc(before, func(i injury) bool { return i.link == k }) })
	dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var some []injury
	for i, part := range parts[n%len(parts)] {
		some = append(some, injury{all[i], part})
	}
	return some
}

func TestLossyLinksAreNamed(t *testing.T) {
	c := newCluster(t)
	c.awaitPaths()
	seen := c.followTurns()
	quiet := time.Duration(number(t, "NET_QUIET_SECONDS", 40)) * time.Second
	<-time.After(quiet)
	if stated := seen.take(); len(stated) > 0 {
		t.Errorf("in %v of quiet: %v", quiet, stated)
	}
	seed, runs, right := number(t, "NET_SEED", 1), number(t, "NET_RUNS", 5), 0
	dice := rand.New(rand.NewPCG(uint64(seed), 0))
	var some []injury
	for n := range runs {
		// Another seed continues with other kinds of loss.
		some = injuries(n+(seed-1)*runs, dice, some)
		if t.Run(fmt.Sprintf("run %d", n), func(t *testing.T) { c.nameLossy(t, seen, some) }) {
			right++
		}
	}
	t.Logf("%d of %d runs named right", right, runs)
}

// nameLossy makes links lose packets and waits until they, and no others, are named.
func (c *cluster) nameLossy(t *testing.T, seen *turns, some []injury) {
	var want []string
	for _, k := range some {
		t.Logf("%s loses %.3g", k.id(), k.part)
		want = append(want, k.id())
	}
	slices.Sort(want)
	seen.take()
	began := time.Now()
	for _, k := range some {
		c.lose(k.link, k.part)
	}
	var named, words []string
	defer func() {
		c.heal()
		<-time.After(35 * time.Second) // the windows with lost packets have passed
		for _, turn := range append(words, seen.take()...) {
			t.Log(turn)
			if id, _, _ := strings.Cut(turn, " "); strings.Contains(turn, event.FactDegraded) && !slices.Contains(want, id) {
				t.Errorf("%s was named", id)
			}
		}
	}()
	until(t, namedWithin, func() (bool, string) {
		for _, turn := range seen.take() {
			words = append(words, turn)
			if id, _, _ := strings.Cut(turn, " "); strings.Contains(turn, event.FactDegraded) {
				named = append(named, id)
			}
		}
		slices.Sort(named)
		return slices.Equal(named, want), fmt.Sprintf("named %v, want %v", named, want)
	})
	t.Logf("named after %v", time.Since(began).Round(100*time.Millisecond))
}
