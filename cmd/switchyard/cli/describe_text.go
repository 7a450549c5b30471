package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// page is text in the making: labelled lines, then tables. Texts of others are escaped by whoever adds them.
type page struct{ strings.Builder }

// field adds a labelled line.
func (p *page) field(label, format string, args ...any) {
	_, _ = fmt.Fprintf(p, "%-11s %s\n", label, fmt.Sprintf(format, args...))
}

func (p *page) section(title string) { _, _ = fmt.Fprintf(p, "\n%s\n", title) }

// rows adds a table, indented below its section.
func (p *page) rows(header string, lines []string) {
	w := tabwriter.NewWriter(p, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "  "+header)
	for _, line := range lines {
		_, _ = fmt.Fprintln(w, "  "+line)
	}
	_ = w.Flush() // a Builder takes everything
}

// describeText tells a description to a person. Times are in now's zone.
func describeText(d description, now time.Time) string {
	var p page
	j := d.Job
	head := fmt.Sprintf("job %s", j.ID)
	if j.Spec.Name != "" {
		head += ", " + escapeText(j.Spec.Name)
	}
	if j.Spec.User != "" {
		head += ", of " + escapeText(j.Spec.User)
	}
	_, _ = fmt.Fprintln(&p, head)
	p.standing(j, now)
	p.plan(d, now)
	p.company(d)
	p.times(j, now)
	p.course(d, now)
	p.tuning(d.Tuning)
	p.finish(d, now)
	for i, w := range j.Warnings {
		label := ""
		if i == 0 {
			label = "warnings"
		}
		p.field(label, "%s", escapeText(w))
	}
	p.spec(j.Spec.WithDefaults())
	p.folders(d)
	p.model(d)
	p.energy(d)
	p.history(j.History, now)
	p.logTail(j)
	return p.String()
}

func (p *page) standing(j train.Job, now time.Time) {
	line := string(j.State)
	if !j.Since.IsZero() && !j.State.Terminal() {
		line += " for " + duration(now.Sub(j.Since).Seconds())
	}
	if j.Reason != "" {
		line += ", " + escapeText(j.Reason)
	}
	if j.Message != "" {
		line += ": " + escapeText(j.Message)
	}
	p.field("state", "%s", line)
	if j.ExitCode != nil && *j.ExitCode != 0 {
		p.field("", "exit status %d", *j.ExitCode)
	}
	if j.Hint != "" {
		p.field("hint", "%s", escapeText(j.Hint))
	}
	if j.CancelRequested && !j.State.Terminal() {
		p.field("", "its end was asked for")
	}
	for i, r := range j.Blockers {
		label := "  also"
		if i == 0 {
			label = "Why:"
		}
		p.field(label, "%s - %s", dash(escapeText(r.Code)), escapeText(r.String()))
	}
}

func (p *page) plan(d description, now time.Time) {
	if d.Plan == nil {
		return
	}
	by := fmt.Sprintf("plan %d of %s by %s", d.Plan.Generation, clock(d.Plan.DecidedAt, now), d.Plan.Policy)
	if a := d.Plan.Allocation; a != nil {
		p.field("plan", "%s, %s", spread(a.Places(), "on"), by)
		if a.Reason.Code != "" {
			p.field("", "%s - %s", escapeText(a.Reason.Code), escapeText(a.Reason.String()))
		}
	}
	if w := d.Plan.Waiting; w != nil {
		line := fmt.Sprintf("no devices, position %d of %d that wait", d.Plan.Position, d.Plan.Queue)
		if w.StartInSeconds > 0 {
			start := d.Plan.DecidedAt.Add(time.Duration(w.StartInSeconds * float64(time.Second)))
			line += fmt.Sprintf(", predicted to start at %s (in %s)", clock(start, now), duration(start.Sub(now).Seconds()))
		}
		p.field("plan", "%s, %s", line, by)
	}
}

func (p *page) times(j train.Job, now time.Time) {
	line := "at " + clock(j.SubmittedAt, now)
	if !j.StartedAt.IsZero() {
		line += fmt.Sprintf(", started at %s after %s", clock(j.StartedAt, now), duration(j.StartedAt.Sub(j.SubmittedAt).Seconds()))
	}
	if !j.FinishedAt.IsZero() {
		line += fmt.Sprintf(", ended at %s after %s", clock(j.FinishedAt, now), duration(j.FinishedAt.Sub(j.SubmittedAt).Seconds()))
	}
	if j.SubmittedAt.IsZero() {
		line = "not taken up yet"
	}
	p.field("submitted", "%s", line)
}

// course tells how far the job is and what happened on the way.
func (p *page) course(d description, now time.Time) {
	j := d.Job
	if j.Spec.MaxEpochs > 0 {
		const width = 20
		p.field("progress", "%s %d of %d epochs", progressBar(j.EpochsDone, j.Spec.MaxEpochs, width), j.EpochsDone, j.Spec.MaxEpochs)
	}
	if j.Attempt > 0 {
		p.field("ran", "%s in %s: %s, %s, %s", duration(d.RunSeconds), plural(j.Attempt, "attempt"), plural(j.Rescales, "rescale"),
			plural(j.Preemptions, "preemption"), counted(j.Recoveries, "recovery", "recoveries"))
	}
	if a := d.Attempt; a != nil && !j.State.Terminal() {
		line := fmt.Sprintf("%d %s on %s", a.Number, a.Phase, spread(a.places(), "of"))
		if a.Stop != train.StopNone {
			line += fmt.Sprintf(", asked to stop (%s) %s ago", a.Stop, duration(now.Sub(a.StopSince).Seconds()))
		}
		if a.NotBefore.After(now) {
			line += fmt.Sprintf(", the next one in %s", duration(a.NotBefore.Sub(now).Seconds()))
		}
		p.field("attempt", "%s", line)
		if words := enforced(*a); words != "" {
			p.field("memory", "%s", words)
		}
	}
	if r := d.Report; r != nil {
		switch {
		case r.Checkpoint != "":
			p.field("checkpoint", "%s, after epoch %d", escapeText(r.Checkpoint), r.CheckpointEpochs)
		case !r.Spoke && d.RunSeconds > 0:
			p.field("checkpoint", "none reported: the training code has not called the job API, so it cannot be asked to stop at an epoch's end")
		}
	}
}

// enforced says what holds an attempt to its part of a device that it shares, or others to theirs; empty where it has whole GPUs.
func enforced(a attemptView) string {
	shares := slices.ContainsFunc(a.places(), func(p train.Part) bool { return p.Memory > 0 })
	switch {
	case a.Enforcement == train.EnforcedByMIG:
		return "mig: an instance of a partitioned GPU, its memory is its own"
	case !shares:
		return ""
	case a.Enforcement == train.EnforcedByMPS:
		return "mps: the driver gives it no more than its part, as long as the job leaves its environment alone"
	case a.Enforcement == train.EnforcedByAdvice:
		return "advisory: it is told its part and measured; one that uses more leaves at its epoch's end and asks for more"
	}
	return "none: nothing holds it to its part"
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// deadline compares the end, or the predicted one, with what the user asked for.
func (p *page) deadline(j train.Job, now time.Time) {
	if j.Spec.Deadline == nil {
		return
	}
	end, word := j.PredictedFinish, "predicted to be"
	if j.State.Terminal() {
		end, word = j.FinishedAt, "ended"
	}
	line := clock(*j.Spec.Deadline, now)
	switch slack := j.Spec.Deadline.Sub(end).Seconds(); {
	case end.IsZero():
	case slack >= 0:
		line += fmt.Sprintf(", %s %s before it", word, duration(slack))
	default:
		line += fmt.Sprintf(", %s %s late", word, duration(-slack))
	}
	p.field("deadline", "%s", line)
}

// finish compares what was predicted with what came.
func (p *page) finish(d description, now time.Time) {
	j := d.Job
	switch {
	case j.State == train.StateSucceeded && !j.FirstPredictedFinish.IsZero():
		off := j.FinishedAt.Sub(j.FirstPredictedFinish).Seconds()
		word := "later"
		if off < 0 {
			word = "earlier"
		}
		line := fmt.Sprintf("at %s, %s %s than first predicted (%s)", clock(j.FinishedAt, now), duration(max(off, -off)), word, clock(j.FirstPredictedFinish, now))
		if whole := j.FinishedAt.Sub(j.StartedAt).Seconds(); whole > 0 && !j.StartedAt.IsZero() {
			line += fmt.Sprintf(", %+.0f %% of the time since its start", 100*off/whole)
		}
		p.field("finish", "%s", line)
	case j.State.Terminal() || j.PredictedFinish.IsZero():
	default:
		line := fmt.Sprintf("predicted at %s, in %s", clock(j.PredictedFinish, now), duration(j.PredictedFinish.Sub(now).Seconds()))
		if slack, known := finishSlack(d); known {
			line += " (+-" + duration(slack) + ")"
		}
		if !j.FirstPredictedFinish.IsZero() {
			line += fmt.Sprintf("; first predicted at %s", clock(j.FirstPredictedFinish, now))
		}
		p.field("finish", "%s", line)
		if j.EstimateSeconds > 0 {
			p.field("", "%s of running in all", duration(j.EstimateSeconds))
		}
	}
	p.deadline(j, now)
	if j.PriorityPenalty > 0 {
		p.field("priority", "%d: lowered by %d, since the job outruns its user's estimate", j.EffectivePriority(), j.PriorityPenalty)
	}
}

// finishSlack is half the interval of the remaining time, from the model, on the devices that the job has.
func finishSlack(d description) (seconds float64, known bool) {
	if d.Model == nil || len(d.Job.Devices) == 0 {
		return 0, false
	}
	cfg := train.Config{Workers: len(d.Job.Devices), Nodes: 1, LocalBatch: d.Job.Spec.BatchSize}
	if d.Model.EpochConfig.Workers == cfg.Workers {
		cfg = d.Model.EpochConfig
	}
	steps := func(c train.Config) float64 { return float64(d.Job.Spec.StepsPerEpoch(c.Workers)) }
	left, known := d.Model.RemainingSeconds(cfg, float64(d.Job.EpochsDone), train.StopRule{MaxEpochs: d.Job.Spec.MaxEpochs}, steps)
	return (left.High - left.Low) / 2, known
}

func (p *page) spec(s train.Spec) {
	p.section("asked for")
	if len(s.Command) > 0 {
		p.field("  command", "%s", escapeText(shellWords(s.Command)))
	}
	if s.ScriptPath != "" {
		p.field("  script", "python %s", escapeText(s.ScriptPath))
	}
	if s.Image != "" {
		p.field("  image", "%s", escapeText(s.Image))
	}
	if len(s.Env) > 0 {
		p.field("  env", "%s (values: -o json)", escapeText(strings.Join(slices.Sorted(maps.Keys(s.Env)), ", ")))
	}
	p.field("  training", "%s of %s, batches of %d per device", plural(s.MaxEpochs, "epoch"), plural(s.TrainingSetSize, "sample"), s.BatchSize)
	devices := plural(s.MinDevices, "device")
	if s.MaxDevices > s.MinDevices {
		devices = fmt.Sprintf("%d to %d devices", s.MinDevices, s.MaxDevices)
	}
	devices += fmt.Sprintf(", strategy %s, one process %s", s.Strategy, strings.ReplaceAll(string(s.Launch), "_", " "))
	switch {
	case s.DisableSharing:
		devices += ", not shared"
	case s.AllowSharing:
		devices += ", which it may share"
	}
	if s.EstimatedMemoryMiB > 0 {
		devices += fmt.Sprintf(", %s each", s.EstimatedMemory())
	}
	p.field("  devices", "%s", devices)
	if len(s.Ports) > 0 {
		p.field("  ports", "%s (node:container)", portMapping(s.Ports))
	}
	line := fmt.Sprintf("%d, at most %s in a row after losses", *s.Priority, plural(*s.MaxRestarts, "restart"))
	if s.EstimatedHours > 0 {
		line += fmt.Sprintf(", estimated at %s", duration(s.EstimatedHours*3600))
	}
	p.field("  priority", "%s", line)
}

// shellWords joins words so that a person can paste them into a shell.
func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = shellWord(w)
	}
	return strings.Join(quoted, " ")
}

// shellWord quotes a word where a POSIX shell would see more than a word in it.
func shellWord(w string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_=./:,@%+", r)
	}
	if w != "" && strings.IndexFunc(w, func(r rune) bool { return !plain(r) }) < 0 {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// folders tells under which names the job sees its folders.
func (p *page) folders(d description) {
	s := d.Job.Spec
	own := "(the scheduler's own folder for this job)"
	for _, f := range []struct{ label, host, mount, variable string }{
		{"  custom", s.CustomDir, "/custom", "SWITCHYARD_CUSTOM_DIR"},
		{"  snapshots", cmp.Or(s.SnapshotsDir, own), "/snapshots", "SWITCHYARD_SNAPSHOTS_DIR"},
		{"  data", s.DatasetsDir, "/data", "SWITCHYARD_DATA_DIR"},
	} {
		if f.host == "" {
			continue
		}
		as := "as " + f.mount
		switch {
		case d.Mounted != nil && *d.Mounted:
			as = "mounted as " + f.mount
		case d.Mounted != nil:
			as = "named by " + f.variable + " (this node mounts nothing)"
		}
		p.field(f.label, "%s %s", escapeText(f.host), as)
	}
	if s.WorkDir != "" {
		p.field("  work", "%s", escapeText(s.WorkDir))
	}
}

// historyShown is how many changes a person gets to see.
const historyShown = 30

func (p *page) history(changes []train.Change, now time.Time) {
	if len(changes) == 0 {
		return
	}
	p.section("history")
	if hidden := len(changes) - historyShown; hidden > 0 {
		_, _ = fmt.Fprintf(p, "  .. %s before (-o json has all)\n", plural(hidden, "change"))
		changes = changes[hidden:]
	}
	const width = 90
	var lines []string
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%d\t%s", clock(c.At, now), cell(c.Fact, width), c.State, c.Attempt, dash(train.JoinDevices(c.Devices)), c.Epochs,
			cell(c.Message, width)))
	}
	p.rows("AT\tFACT\tSTATE\tATTEMPT\tDEVICES\tEPOCHS\tMESSAGE", lines)
}

// logTail shows the end of the output of a job that failed.
func (p *page) logTail(j train.Job) {
	if j.State != train.StateFailed || j.LogTail == "" {
		return
	}
	p.section("end of the output (all of it: switchyard logs " + string(j.ID) + ")")
	for line := range strings.Lines(strings.TrimSuffix(escapeLines(j.LogTail), "\n") + "\n") {
		_, _ = fmt.Fprint(p, "  | "+line)
	}
}

// spread says where something runs: the devices and their node, or for a gang all of them.
func spread(parts []train.Part, of string) string {
	if len(parts) > 1 {
		return train.JoinPlaces(parts)
	}
	return fmt.Sprintf("%s %s node %s", parts[0], of, parts[0].Node)
}
