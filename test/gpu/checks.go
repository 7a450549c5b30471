package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// group is the checks that need the same installation. flags are its settings; without them, none is started.
type group struct {
	flags  func(*bench) []string
	checks []check
}

// groups lists everything that is tried, in this order.
func groups() []group {
	return []group{
		{nil, []check{
			{"devices", "NVML lists the GPUs that nvidia-smi lists", devices},
			{"MIG", "partitions are listed and left as they are", partitions},
			{"metering", "power sampled over a load is within 15 % of the energy counter", metering},
		}},
		{func(*bench) []string { return []string{} }, []check{
			{"visible devices", "each job sees its GPU and no other", visible},
			{"attribution", "of two jobs on one GPU the one that works more pays more, by NVML", attribution},
			{"memory, advisory", "a job that outgrows its part of a shared GPU is warned", outgrown},
			{"container", "a container sees the GPU of its job and no other", container},
			{"DDP", "processes exchange gradients over NCCL, one for each GPU", exchange},
			{"elastic", "a job grows when a GPU is free, is preempted, and goes on from its checkpoint", elastic},
		}},
		{func(b *bench) []string {
			return []string{"SWITCHYARD_MPS_DAEMON=true", "SWITCHYARD_MPS_PIPE_DIRECTORY=" + filepath.Join(b.dir, "mps")}
		}, []check{{"MPS, memory", "the agent's daemon serves two jobs, and one is refused memory beyond its part", enforced}}},
		{nil, []check{{"MPS, end", "the daemon has ended with its agent", daemonEnded}}},
		{func(b *bench) []string { return []string{b.powerLimits()} }, []check{
			{"power limits", "a lower limit is set, outlives kill -9 of the agent, and is given back", powerLimits},
		}},
	}
}

// devices compares NVML with the driver's own tool.
func devices(ctx context.Context, b *bench) (string, error) {
	d := b.devices[0]
	seen := fmt.Sprintf("%d, the first %s with %s, driver %s", len(b.devices), d.Model, d.Memory, d.Driver)
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return seen, notTried("there is no nvidia-smi here to compare with")
	}
	out, err := exec.CommandContext(ctx, path, "--query-gpu=uuid", "--format=csv,noheader").Output()
	if err != nil {
		return seen, fmt.Errorf("ask nvidia-smi: %w", err)
	}
	boards := map[int]bool{}
	for _, d := range b.devices {
		boards[d.Index] = true
	}
	if listed := strings.Fields(string(out)); len(listed) != len(boards) {
		return seen, fmt.Errorf("nvidia-smi lists %d", len(listed))
	}
	return seen, nil
}

func partitions(_ context.Context, b *bench) (string, error) {
	var parts []string
	for _, d := range b.devices {
		if d.Instance > 0 {
			parts = append(parts, fmt.Sprintf("%s (%s)", d.ID(), d.Memory))
		}
	}
	if len(parts) == 0 {
		return "", notTried("no GPU here is partitioned")
	}
	return strings.Join(parts, ", "), nil
}

// whole returns the first GPU that is not partitioned.
func (b *bench) whole() (gpu.Device, error) {
	if i := slices.IndexFunc(b.devices, func(d gpu.Device) bool { return d.Instance == 0 }); i >= 0 {
		return b.devices[i], nil
	}
	return gpu.Device{}, notTried("all GPUs here are partitioned")
}

// metering keeps a GPU busy and idle in turns, and compares its counter of energy with its power over the same time.
func metering(ctx context.Context, b *bench) (string, error) {
	d, err := b.whole()
	if err != nil {
		return "", err
	}
	load := exec.CommandContext(ctx, b.loader, "64", strconv.FormatFloat(b.load.Seconds(), 'f', 1, 64), "0.7")
	load.Env = append(b.environ(), "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES="+strconv.Itoa(d.Index))
	first, err := b.library.Sample(d.Index)
	if err != nil {
		return "", err
	}
	if !first.HasEnergy || !first.HasPower {
		return "", notTried("this GPU reports no counter of energy, or no power")
	}
	if err := load.Start(); err != nil {
		return "", fmt.Errorf("start the load: %w", err)
	}
	during, stop := context.WithTimeout(ctx, b.load+b.load/5)
	defer stop()
	last, began := first, time.Now()
	at, sampled := began, unit.Energy(0)
	for range tick.After(during, 50*time.Millisecond) {
		s, err := b.library.Sample(d.Index)
		if err != nil {
			return "", errors.Join(err, load.Wait())
		}
		now := time.Now()
		sampled += ((s.Power + last.Power) / 2).Over(now.Sub(at))
		last, at = s, now
	}
	if err := load.Wait(); err != nil {
		return "", fmt.Errorf("load the GPU: %w", err)
	}
	counted := last.Energy - first.Energy
	seen := fmt.Sprintf("%.0f J by the counter, %.0f J by power over %.1f s", counted.Joules(), sampled.Joules(), at.Sub(began).Seconds())
	const most = 0.15
	if counted <= 0 || math.Abs(sampled.Joules()/counted.Joules()-1) > most {
		return seen, errors.New("they differ by more than 15 %")
	}
	return seen, nil
}

// visible runs a job on each GPU at the same time.
func visible(ctx context.Context, b *bench) (string, error) {
	var ids, right []string
	for i := range b.devices {
		id := fmt.Sprintf("see%d", i)
		if err := b.submit(ctx, id, map[string]any{"command": []string{b.loader, "16", "3", "0.2"}}); err != nil {
			return "", err
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		j, err := b.reach(ctx, id, "ends", ended)
		if err != nil {
			return "", err
		}
		out := b.output(ctx, id)
		d := b.device(j.Attempt.Devices[0])
		want := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(d.UUID, "GPU-"), "MIG-"), "-", "")
		if got := values(out, "uuid"); !slices.Equal(values(out, "devices"), []string{"1"}) || !slices.Equal(got, []string{want}) {
			return "", fmt.Errorf("job on %s with UUID %s printed %q", d.ID(), d.UUID, out)
		}
		right = append(right, string(d.ID()))
	}
	return strings.Join(right, ", ") + " by UUID", nil
}

// share puts two jobs on one GPU, with whole jobs on all others, and calls while both run.
func (b *bench) share(ctx context.Context, heavy, light []string, parts [2]int, during func(gpu.Device) error) (jobs [2]job, err error) {
	var ids []string
	for i := range len(b.devices) - 1 {
		id := fmt.Sprintf("keep%d-%d", b.number, i)
		if err := b.submit(ctx, id, map[string]any{"command": []string{"sleep", "3600"}}); err != nil {
			return jobs, err
		}
		ids = append(ids, id)
		if _, err := b.reach(ctx, id, "runs", runs); err != nil {
			return jobs, err
		}
	}
	pair := []string{fmt.Sprintf("heavy%d", b.number), fmt.Sprintf("light%d", b.number)}
	for i, command := range [][]string{heavy, light} {
		err := b.submit(ctx, pair[i], map[string]any{"command": append([]string{b.loader}, command...), "allow_sharing": true, "estimated_memory_mib": parts[i]})
		if err == nil {
			_, err = b.reach(ctx, pair[i], "runs", runs)
		}
		if err != nil {
			return jobs, errors.Join(err, b.cancel(ctx, ids...))
		}
	}
	err = during(b.device(b.describe(ctx, pair[0]).Attempt.Devices[0]))
	err = errors.Join(err, b.cancel(ctx, append(ids, pair...)...))
	for i, id := range pair {
		jobs[i] = b.describe(ctx, id)
	}
	return jobs, err
}

// attribution looks at two jobs on one GPU: what NVML says of their processes, and what they are charged. The bill is
// read again until it shows the work: before a program has a context, NVML knows nothing of it.
func attribution(ctx context.Context, b *bench) (string, error) {
	most, id := 0, func(name string) string { return name + strconv.Itoa(b.number) }
	jobs, err := b.share(ctx, []string{"1024", "3600", "0.7"}, []string{"512", "3600", "0.1"}, [2]int{3072, 3072}, func(d gpu.Device) error {
		_ = b.wait(ctx, jobTimeout, "the bill shows the work", func() bool {
			most = max(most, len(b.processes(d)))
			heavy, light := gpuEnergy(b.describe(ctx, id("heavy"))), gpuEnergy(b.describe(ctx, id("light")))
			return most == 2 && light > 0 && heavy >= 2*light
		})
		return ctx.Err()
	})
	if err != nil {
		return "", err
	}
	if jobs[0].Account == nil || jobs[1].Account == nil {
		return "", errors.New("a job has no account")
	}
	heavy, light := gpuEnergy(jobs[0]), gpuEnergy(jobs[1])
	seen := fmt.Sprintf("%d processes; %.0f J and %.0f J by %s", most, heavy.Joules(), light.Joules(), strings.Join(jobs[0].Account.Methods, "+"))
	byDriver := slices.ContainsFunc(jobs[0].Account.Methods, func(m string) bool { return strings.HasPrefix(m, "nvml") })
	if most != 2 || heavy < 2*light || light <= 0 || !byDriver {
		return seen, errors.New("want two processes, energy for both, and at least twice as much for the one that works seven times as much")
	}
	return seen, nil
}

// gpuEnergy returns what a job is charged for the work of GPUs so far.
func gpuEnergy(j job) unit.Energy {
	if j.Account == nil {
		return 0
	}
	return j.Account.Components["gpu"]
}

// outgrown lets a job take more memory than its part.
func outgrown(ctx context.Context, b *bench) (string, error) {
	b.number++
	jobs, err := b.share(ctx, []string{"3072", "3600", "0.3"}, []string{"64", "3600", "0.1"}, [2]int{1024, 2048}, func(gpu.Device) error {
		_, err := b.reach(ctx, fmt.Sprintf("heavy%d", b.number), "is warned", func(j job) bool { return len(j.Job.Warnings) > 0 })
		return err
	})
	if err != nil {
		return "", err
	}
	return jobs[0].Job.Warnings[0], nil
}

// enforced lets a job ask for more memory than its part while the daemon limits it.
func enforced(ctx context.Context, b *bench) (string, error) {
	if _, err := exec.LookPath("nvidia-cuda-mps-control"); err != nil {
		return "", notTried("there is no nvidia-cuda-mps-control here")
	}
	if err := b.awaitMPS(ctx); err != nil {
		return "", err
	}
	id := fmt.Sprintf("heavy%d", b.number)
	jobs, err := b.share(ctx, []string{"512", "3600", "0.3", "4096"}, []string{"512", "3600", "0.3"}, [2]int{2048, 2048}, func(d gpu.Device) error {
		_, err := b.reach(ctx, id, "has asked for more", func(job) bool { return strings.Contains(b.output(ctx, id), " 4096") })
		if n := len(b.processes(d)); err == nil && n < 2 {
			err = fmt.Errorf("NVML lists %d programs", n)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	out := b.output(ctx, id)
	if got, refused := values(out, "allocated"), values(out, "refused"); !slices.Equal(got, []string{"512"}) || !slices.Equal(refused, []string{"4096"}) {
		return "", fmt.Errorf("got %v MiB, was refused %v MiB", got, refused)
	}
	return fmt.Sprintf("held by %s: got 512 MiB, was refused 4096 MiB of its 2048", jobs[0].Attempt.Enforcement), nil
}

// awaitMPS submits short jobs until one is held by the daemon: the node says with its next record that it runs.
func (b *bench) awaitMPS(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("ask%d", i)
		if err := b.submit(ctx, id, map[string]any{"command": []string{"true"}, "allow_sharing": true, "estimated_memory_mib": 1024}); err != nil {
			return err
		}
		j, err := b.reach(ctx, id, "ends", ended)
		if err != nil {
			return err
		}
		if j.Attempt.Enforcement == train.EnforcedByMPS {
			return nil
		}
		tick.Pause(ctx, time.Second)
	}
	return fmt.Errorf("no job was held by MPS within %s; log: %s", startTimeout, b.log())
}

func daemonEnded(ctx context.Context, b *bench) (string, error) {
	path, err := exec.LookPath("nvidia-cuda-mps-control")
	if err != nil {
		return "", notTried("there is no nvidia-cuda-mps-control here")
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(b.environ(), "CUDA_MPS_PIPE_DIRECTORY="+filepath.Join(b.dir, "mps"))
	cmd.Stdin = strings.NewReader("get_server_list\n")
	out, err := cmd.CombinedOutput()
	if err == nil && !strings.Contains(string(out), "Cannot find") {
		return "", fmt.Errorf("it answers: %s", out)
	}
	return "it does not answer", nil
}

// powerLimits returns two limits that all GPUs here have: the lower one is tried by the planner, and chosen for a job
// to which energy is everything.
func (b *bench) powerLimits() string {
	least, most := unit.Power(0), unit.Power(math.MaxInt64)
	for _, d := range b.devices {
		if limits, err := b.library.PowerLimits(d.Index); err == nil {
			least, most = max(least, limits.Least), min(most, limits.Now)
		}
	}
	return fmt.Sprintf("SWITCHYARD_POWER_LIMITS=%g,%g", math.Ceil(least.Watts()), math.Floor(cmp.Or(most, least).Watts()))
}

// powerLimits has a limit set by the agent, kills the agent, and looks whether the next one restores what was before.
func powerLimits(ctx context.Context, b *bench) (string, error) {
	d, err := b.whole()
	if err != nil {
		return "", err
	}
	before, err := b.library.PowerLimits(d.Index)
	if err == nil {
		err = b.library.SetPowerLimit(d.Index, before.Now) // changes nothing, but says whether it may be changed
	}
	if err != nil {
		return "", notTried("limits cannot be set here: " + err.Error())
	}
	err = b.submit(ctx, "limited", map[string]any{
		"command":    []string{filepath.Join(b.bin, "switchyard-trainer"), "-hidden", "8", "-slow-by", "50ms"},
		"max_epochs": 100_000, "energy": map[string]any{"eta": 1.0},
	})
	if err != nil {
		return "", err
	}
	j, err := b.reach(ctx, "limited", "runs", runs)
	if err != nil {
		return "", err
	}
	on := b.device(j.Attempt.Devices[0])
	now := func() unit.Power { l, _ := b.library.PowerLimits(on.Index); return l.Now }
	if before, err = b.library.PowerLimits(on.Index); err != nil {
		return "", err
	}
	if err := b.wait(ctx, jobTimeout, "a lower limit", func() bool { return now() < before.Default }); err != nil {
		return "", errors.Join(err, b.cancel(ctx, "limited"))
	}
	set := now()
	b.kill()
	kept := now()
	if err := b.startAgain(ctx, b.powerLimits()); err != nil {
		return "", err
	}
	err = b.cancel(ctx, "limited")
	err = errors.Join(err, b.wait(ctx, startTimeout, "the limit is given back", func() bool { return now() == before.Default }))
	seen := fmt.Sprintf("%s from %g W to %g W, %g W after the kill, %g W at the end", on.ID(), before.Default.Watts(), set.Watts(), kept.Watts(), now().Watts())
	if err == nil && kept != set {
		err = errors.New("the kill changed it")
	}
	return seen, err
}
