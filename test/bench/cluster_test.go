package bench

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// number is a variable of the environment, or its default.
func number(b *testing.B, name, otherwise string) int {
	b.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(name), otherwise))
	if err != nil {
		b.Fatalf("%s: %v", name, err)
	}
	return n
}

// BenchmarkCluster is what `switchyard up` costs with SCALE_NODES nodes (1,000) of eight devices and SCALE_RUNNING
// running jobs (2,000), each with a heartbeat, and each node with an interval of its meters, every SCALE_EVERY
// milliseconds (1,000). A process of its own plays agents and executors. It reports the processor time of both, how
// long a job waits for its plan meanwhile, and how far consumers are behind.
func BenchmarkCluster(b *testing.B) {
	nodes, jobs := number(b, "SCALE_NODES", "1000"), number(b, "SCALE_RUNNING", "2000")
	every := time.Duration(number(b, "SCALE_EVERY", "1000")) * time.Millisecond
	for b.Loop() {
		i, agents, conn := startCluster(b, agentsOptions{Nodes: nodes, Every: every})
		seen := newSeen(b, conn)
		began := time.Now()
		submitAll(b, conn, jobs, func(int) train.Spec { return onGPU() })
		seen.await(event.FactStarted, jobs)
		b.ReportMetric(time.Since(began).Seconds(), "all-started-s")
		tick.Pause(b.Context(), settled)
		before, generator, stored, at := i.usedSeconds(), seconds(b, agents.Process.Pid), samples(b, conn), time.Now()
		planned := i.planTimes(conn, seen.facts)
		watched := time.Since(at).Seconds()
		b.ReportMetric((i.usedSeconds()-before)/watched, "services-cores")
		b.ReportMetric((seconds(b, agents.Process.Pid)-generator)/watched, "generator-cores")
		b.ReportMetric(float64(samples(b, conn)-stored)/watched, "samples/s")
		b.ReportMetric(float64(nodes+jobs)/every.Seconds(), "wanted-samples/s")
		b.ReportMetric(planned[len(planned)/2].Seconds(), "planned-s")
		b.ReportMetric(planned[len(planned)-1].Seconds(), "planned-most-s")
		b.ReportMetric(i.memoryMiB("VmRSS"), "up-MiB")
		behind := i.lags()
		b.Log("seconds that consumers are behind:", behind)
		b.ReportMetric(slices.Max(slices.Collect(maps.Values(behind))), "lag-s")
		b.ReportMetric(0, "ns/op")
		i.kill()
	}
}

// startCluster starts an installation and the agents of its nodes, and returns when all nodes are known.
func startCluster(b *testing.B, o agentsOptions) (*installed, *exec.Cmd, *bus.Bus) {
	b.Helper()
	i := install(b)
	for n := range o.Nodes {
		if err := i.keys().AddNode(string(machine(n).ID)); err != nil {
			b.Fatal(err)
		}
	}
	i.start()
	o.URL, o.Keys = i.context.NATS, i.context.Keys
	agents, conn := i.agents(o), i.connect()
	awaitNodes(b, conn, o.Nodes)
	return i, agents, conn
}

// awaitNodes waits until all nodes are known: before that, jobs for GPUs are refused.
func awaitNodes(b *testing.B, conn *bus.Bus, n int) {
	b.Helper()
	records, err := bus.OpenKV(b.Context(), conn, contract.Nodes)
	if err != nil {
		b.Fatal(err)
	}
	for range tick.Every(b.Context(), time.Second) {
		if found, err := records.List(b.Context()); err == nil && len(found) > n {
			return
		}
	}
}

func onGPU() train.Spec {
	return train.Spec{Name: "train", Command: []string{"train"}, Device: train.KindGPU, Devices: 1, BatchSize: 32, TrainingSetSize: 1 << 20, MaxEpochs: 100}
}

// planTimes submits a job every two seconds for a minute. It returns in order how long each waited for its plan.
func (i *installed) planTimes(conn *bus.Bus, facts moments) (all []time.Duration) {
	i.b.Helper()
	for n := range 30 {
		began, id := time.Now(), train.JobID(fmt.Sprintf("late-%d", n))
		submit(i.b, conn, id, onGPU())
		all = append(all, facts.await(i.b, id, event.FactPlanned).Sub(began))
		tick.Pause(i.b.Context(), 2*time.Second-time.Since(began))
	}
	slices.Sort(all)
	return all
}

// agents starts the process that plays agents and executors.
func (i *installed) agents(o agentsOptions) *exec.Cmd {
	i.b.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		i.b.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		i.b.Fatal(err)
	}
	cmd := exec.CommandContext(i.b.Context(), self)
	cmd.Env, cmd.Stderr = append(os.Environ(), agentsVariable+"="+string(text)), os.Stderr
	if err := cmd.Start(); err != nil {
		i.b.Fatal(err)
	}
	i.b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// samples is how many heartbeats and intervals the bus has stored. It can take fewer than agents have.
func samples(b *testing.B, conn *bus.Bus) uint64 {
	b.Helper()
	last, err := conn.LastSequence(b.Context(), event.StreamSamples)
	if err != nil {
		b.Fatal(err)
	}
	return last
}

// seconds is the processor time of a process.
func seconds(b *testing.B, pid int) float64 {
	b.Helper()
	s, err := proc.Root("/proc").Process(pid)
	if err != nil {
		b.Fatal(err)
	}
	return s.Own.Seconds()
}

// lags returns the age of the oldest message that each consumer has still to handle.
func (i *installed) lags() map[string]float64 {
	i.b.Helper()
	request, err := http.NewRequestWithContext(i.b.Context(), http.MethodGet, i.context.HTTP+"/metrics", http.NoBody)
	if err != nil {
		i.b.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		i.b.Fatal(err)
	}
	defer response.Body.Close()
	found := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		rest, is := strings.CutPrefix(lines.Text(), "switchyard_bus_consumer_oldest_seconds{consumer=\"")
		consumer, rest, _ := strings.Cut(rest, "\"")
		_, value, _ := strings.Cut(rest, "} ")
		if age, err := strconv.ParseFloat(value, 64); is && err == nil {
			found[consumer] = max(found[consumer], age)
		}
	}
	if len(found) == 0 {
		i.b.Fatal("no consumer reports its lag")
	}
	return found
}
