package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// Explain says what is known about a job. Times are in now's zone.
func Explain(d Job, now time.Time) Text {
	p := page{sections: []Section{{}}}
	j := d.Job
	head := fmt.Sprintf("job %s", j.ID)
	if j.Spec.Name != "" {
		head += ", " + render.EscapeText(j.Spec.Name)
	}
	if j.Spec.User != "" {
		head += ", of " + render.EscapeText(j.Spec.User)
	}
	p.standing(j, now)
	if d.Silent != nil {
		p.field("why", "%s", because(*d.Silent))
	}
	p.plan(d, now)
	p.batchChoice(d)
	p.company(d)
	p.times(j, now)
	for _, id := range d.ContinuedBy {
		p.field("continued", "by %s, from a copy of its checkpoints", id)
	}
	p.course(d, now)
	p.tuning(d.Tuning)
	p.finish(d, now)
	for i, w := range j.Warnings {
		label := ""
		if i == 0 {
			label = "warnings"
		}
		p.field(label, "%s", render.EscapeText(w))
	}
	p.spec(j.Spec.WithDefaults())
	p.folders(d)
	p.edits(j.Edits, now)
	p.batches(d.Batches, j.Spec.BaseBatch())
	p.model(d)
	p.energy(d)
	p.history(j.History, now)
	p.logTail(j)
	return Text{Title: head, Sections: p.sections}
}

func (p *page) standing(j train.Job, now time.Time) {
	line := string(j.State)
	if !j.Since.IsZero() && !j.State.Terminal() {
		line += " for " + render.Duration(now.Sub(j.Since).Seconds())
	}
	if len(j.Blockers) > 0 && j.Blockers[0].Code == j.Reason {
		j.Reason, j.Message, j.Hint = "", "", "" // the first of those below
	}
	if j.Reason != "" {
		line += ", " + render.EscapeText(j.Reason)
	}
	if j.Message != "" {
		line += ": " + render.EscapeText(j.Message)
	}
	p.field("state", "%s", line)
	if j.ExitCode != nil && *j.ExitCode != 0 {
		p.field("", "exit status %d", *j.ExitCode)
	}
	if j.Hint != "" {
		p.field("hint", "%s", render.EscapeText(j.Hint))
	}
	if j.CancelRequested && !j.State.Terminal() {
		p.field("", "its cancellation was requested")
	}
	if why := j.Withheld(); why.Code != "" && !j.State.Terminal() {
		p.field("wanted", "%s, %s ago", render.EscapeText(why.Message), render.Duration(now.Sub(j.Wanted.At).Seconds()))
	}
	p.blockers(j.Blockers)
}

func (p *page) blockers(reasons []train.Reason) {
	for i, r := range reasons {
		label := "  also"
		if i == 0 {
			label = "why"
		}
		p.field(label, "%s", because(r))
	}
}

func (p *page) plan(d Job, now time.Time) {
	if d.Plan == nil {
		return
	}
	by := fmt.Sprintf("plan %d of %s by %s", d.Plan.Generation, render.Clock(d.Plan.DecidedAt, now), d.Plan.Policy)
	if a := d.Plan.Allocation; a != nil {
		p.field("plan", "%s, %s", spread(a.Places(), "on"), by)
		if a.Reason.Code != "" {
			p.field("", "%s", because(a.Reason))
		}
	}
	if w := d.Plan.Waiting; w != nil {
		line := fmt.Sprintf("no devices, position %d of %d in the queue", d.Plan.Position, d.Plan.Queue)
		p.field("plan", "%s, %s", line, by)
		p.holders(d.Plan, now)
	}
}

func (p *page) times(j train.Job, now time.Time) {
	line := "at " + render.Clock(j.SubmittedAt, now)
	if !j.StartedAt.IsZero() {
		line += fmt.Sprintf(", started at %s after %s", render.Clock(j.StartedAt, now), render.Duration(j.StartedAt.Sub(j.SubmittedAt).Seconds()))
	}
	if !j.FinishedAt.IsZero() {
		line += fmt.Sprintf(", ended at %s after %s", render.Clock(j.FinishedAt, now), render.Duration(j.FinishedAt.Sub(j.SubmittedAt).Seconds()))
	}
	if j.SubmittedAt.IsZero() {
		line = "not read by admission yet"
	}
	p.field("submitted", "%s", line)
	if j.Spec.Continue != "" {
		p.field("continues", "%s, from a copy of its checkpoints", j.Spec.Continue)
	}
}

// course prints the progress of the job, and what happened on the way.
func (p *page) course(d Job, now time.Time) {
	j := d.Job
	p.progress(d)
	if j.State.Terminal() {
		for _, line := range d.card().Lines() {
			p.field(line[0], "%s", line[1])
		}
		return
	}
	if j.Attempt > 0 {
		p.field("ran", "%s%s", render.Duration(d.RunSeconds), render.Interruptions(j))
	}
	if a := d.Attempt; a != nil {
		line := fmt.Sprintf("%d %s on %s", a.Number, a.Phase, spread(a.Places(), "of"))
		if a.Stop != train.StopNone {
			line += fmt.Sprintf(", asked to stop (%s) %s ago", a.Stop, render.Duration(now.Sub(a.StopSince).Seconds()))
		}
		if a.NotBefore.After(now) {
			line += fmt.Sprintf(", the next one in %s", render.Duration(a.NotBefore.Sub(now).Seconds()))
		}
		p.field("attempt", "%s", line)
		if a.Staging != nil {
			p.field("data", "%s", staged(*a.Staging))
		}
		if words := enforced(*a); words != "" {
			p.field("memory", "%s", words)
		}
	}
	p.checkpoint(d, now)
}

// staged says how far the data of an attempt is on its way to the node.
func staged(s train.Staging) string {
	size, source := unit.Bytes(s.Total).String(), cmp.Or(s.URL, "its address")
	switch {
	case s.Cached:
		return fmt.Sprintf("%s of %s, which the node had already", size, source)
	case s.Whole():
		return fmt.Sprintf("%s fetched from %s", size, source)
	case s.Total > 0:
		return fmt.Sprintf("%s of %s fetched from %s", unit.Bytes(s.Bytes).String(), size, source)
	}
	return fmt.Sprintf("%s fetched from %s", unit.Bytes(s.Bytes).String(), source)
}

// progress prints how far the job is in epochs and steps, as far as they are known.
func (p *page) progress(d Job) {
	const width = 20
	s := d.Job.Spec
	if d.Progress == nil || s.Epochs() == 0 {
		return
	}
	var parts []string
	if s.MaxEpochs > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d epochs", d.Job.EpochsDone, s.MaxEpochs))
	}
	if r := d.Report; r != nil && r.Steps.Known() {
		steps := r.Steps.In(s, len(d.Job.Devices))
		switch {
		case s.MaxSteps > 0:
			parts = append(parts, fmt.Sprintf("%d of %d steps", min(steps.Total, s.MaxSteps), s.MaxSteps))
		case steps.Of > 0 && d.Job.State.Active():
			parts = append(parts, fmt.Sprintf("step %d of %d", steps.Done, steps.Of))
		}
		if steps.Seconds > 0 && d.Job.State.Active() {
			parts = append(parts, render.StepTime(steps.Seconds)+" each")
		}
	} else if s.MaxSteps > 0 {
		parts = append(parts, render.Plural(s.MaxSteps, "step")+" in all")
	}
	p.field("progress", "%s %s", render.ProgressBar(*d.Progress, width), strings.Join(parts, ", "))
}

// because says why in words, with the code for programs behind.
func because(r train.Reason) string {
	if r.Code == "" {
		return render.EscapeText(r.String())
	}
	return fmt.Sprintf("%s [%s]", render.EscapeText(r.String()), render.EscapeText(r.Code))
}

// checkpoint says from what the job would go on, and when it saves next.
func (p *page) checkpoint(d Job, now time.Time) {
	j, r := d.Job, d.Report
	if r == nil {
		return
	}
	switch {
	case r.HasCheckpoint():
		p.field("checkpoint", "%s", d.card().Checkpoint())
	case !r.Askable() && d.RunSeconds > 0:
		p.field("checkpoint", "none reported: the code keeps its devices until it ends. To let it leave and go on later, submit with")
		p.field("", "--preempt signal --checkpoint PATTERN, or let it call the job API (docs/your-script.md)")
	case r.EpochsDone == 0 && j.EpochsDone == 0 && j.EpochStep == 0 && j.State.Active():
		p.field("checkpoint", "none yet: if the job is lost now, it begins again")
	}
	if j.State.Active() {
		p.leaving(d, now)
	}
}

// leaving says how and when a job can leave its devices.
func (p *page) leaving(d Job, now time.Time) {
	r := d.Report
	switch end, known := r.NextSave(d.Job.Spec, len(d.Job.Devices), now); {
	case r.Signal == train.SignalSave:
		p.field("", "it is asked to leave by SIGUSR1, which it catches")
	case r.Signal != "":
		p.field("", "it is asked to leave by SIGTERM, after its next checkpoint: it does not catch SIGUSR1")
	case r.AnyStep:
		p.field("", "it can stop and save after any step")
	case known:
		p.field("", "the next one in about %s, at the end of the epoch", render.Duration(end.Seconds()))
	}
}

// enforced says how the parts of a shared device are enforced. It returns "" for whole GPUs.
func enforced(a view.Attempt) string {
	shares := slices.ContainsFunc(a.Places(), func(p train.Part) bool { return p.Memory > 0 })
	switch {
	case a.Enforcement == train.EnforcedByMIG:
		return "mig: an instance of a partitioned GPU, its memory is its own"
	case a.Enforcement == train.GivenWhole:
		return "whole: the cluster gives out whole GPUs, so no job shares them"
	case !shares:
		return ""
	case a.Enforcement == train.EnforcedByMPS:
		return "mps: the driver enforces its part, unless the job changes its environment"
	case a.Enforcement == train.EnforcedByAdvice:
		return "advisory: the job knows its part and is measured; if it uses more, it leaves at the end of an epoch and asks for more"
	}
	return "none: nothing enforces its part"
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// deadline compares the end, or the predicted end, with the user's deadline.
func (p *page) deadline(d Job, now time.Time) {
	j := d.Job
	if j.Spec.Deadline == nil {
		return
	}
	end, word := time.Time{}, "predicted to be"
	if d.Plan != nil && d.Plan.Predicted.Finish != nil {
		end = d.Plan.Predicted.Finish.Expected
	}
	if j.State.Terminal() {
		end, word = j.FinishedAt, "ended"
	}
	line := render.Clock(*j.Spec.Deadline, now)
	switch slack := j.Spec.Deadline.Sub(end).Seconds(); {
	case end.IsZero():
	case slack >= 0:
		line += fmt.Sprintf(", %s %s before it", word, render.Duration(slack))
	default:
		line += fmt.Sprintf(", %s %s late", word, render.Duration(-slack))
	}
	p.field("deadline", "%s", line)
}

// limit prints the time limit, and what is left of it.
func (p *page) limit(j train.Job, now time.Time) {
	limit := j.Spec.TimeLimit
	switch left := limit.Seconds() - j.RunSecondsAt(now); {
	case limit == 0:
	case j.State.Terminal():
		p.field("time limit", "%s", limit)
	default:
		p.field("time limit", "%s of running, %s left", limit, render.Duration(max(left, 0)))
	}
}

// finish compares the predicted end with the end.
func (p *page) finish(d Job, now time.Time) {
	j := d.Job
	switch {
	case j.State == train.StateSucceeded && !j.FirstPredictedFinish.IsZero():
		off := j.FinishedAt.Sub(j.FirstPredictedFinish).Seconds()
		word := "later"
		if off < 0 {
			word = "earlier"
		}
		p.field("finish", "%s %s than first predicted", render.Duration(max(off, -off)), word)
	case j.State.Terminal() || d.Plan == nil:
	default:
		p.predicted("start", d.Plan.Predicted.Start, time.Time{}, now)
		p.predicted("finish", d.Plan.Predicted.Finish, j.FirstPredictedFinish, now)
		if j.EstimateSeconds > 0 {
			p.field("", "%s of running in all", render.Duration(j.EstimateSeconds))
		}
	}
	p.deadline(d, now)
	p.limit(j, now)
	for i, d := range j.Spec.Dependencies() {
		label, state := "", "has not ended"
		if ended, is := j.Ended[d.Job]; is {
			state = string(ended)
		}
		if i == 0 {
			label = "after"
		}
		p.field(label, "%s:%s, %s", d.On, d.Job, state)
	}
	if j.PriorityPenalty > 0 {
		p.field("priority", "%d: lowered by %d, because the job takes longer than its user's estimate", j.EffectivePriority(), j.PriorityPenalty)
	}
}

// predicted prints a predicted time with its interval, and what was predicted first.
func (p *page) predicted(label string, m *train.Moment, first, now time.Time) {
	if m == nil {
		return
	}
	line := fmt.Sprintf("predicted at %s, %s", render.Clock(m.Expected, now), render.In(*m, now))
	if m.Expected.Sub(now) >= time.Second {
		line = fmt.Sprintf("predicted at %s, in %s", render.Clock(m.Expected, now), render.In(*m, now))
	}
	if !first.IsZero() {
		line += fmt.Sprintf("; first predicted at %s", render.Clock(first, now))
	}
	p.field(label, "%s", line)
}

// holders names the jobs that hold what a waiting job could use, and when they end.
func (p *page) holders(v *view.Plan, now time.Time) {
	for i, h := range v.Holders {
		label := ""
		if i == 0 {
			label = "held by"
		}
		when := "nobody knows until when"
		if h.Finish != nil {
			when = "free in " + render.In(*h.Finish, now)
			if h.Finish.Expected.Sub(now) < time.Second {
				when = "free " + render.In(*h.Finish, now)
			}
		}
		p.field(label, "%s, %s: %s", h.Job, spread(h.Places, "on"), when)
	}
}

// trainingWords says what the user declared of the training: its epochs, samples and batch, each only if given.
func trainingWords(s train.Spec) string {
	var told []string
	switch epochs, samples := render.Plural(s.MaxEpochs, "epoch"), render.Plural(s.TrainingSetSize, "sample"); {
	case s.MaxEpochs > 0 && s.TrainingSetSize > 0:
		told = append(told, epochs+" of "+samples)
	case s.MaxEpochs > 0:
		told = append(told, epochs)
	case s.TrainingSetSize > 0:
		told = append(told, "epochs of "+samples)
	}
	if s.MaxSteps > 0 {
		told = append(told, "at most "+render.Plural(s.MaxSteps, "step"))
	}
	if s.BatchSize > 0 {
		told = append(told, batchWords(s))
	}
	return strings.Join(told, ", ")
}

// batchWords says how large the optimizer steps of a job are.
func batchWords(s train.Spec) string {
	a := s.AdaptiveBatch
	switch {
	case a != nil:
		return fmt.Sprintf("steps of %d to %d, passes of at most %d per device, learning rate %s",
			s.GlobalBatchSize, a.Max, s.MaxLocalBatch(), a.LearningRate)
	case s.KeepsBatch():
		return fmt.Sprintf("steps of %d, passes of at most %d per device", s.GlobalBatchSize, s.BatchSize)
	}
	return fmt.Sprintf("batches of %d per device", s.BatchSize)
}

func (p *page) spec(s train.Spec) {
	p.section("asked for")
	if s.Project != "" {
		p.field("  project", "%s", render.EscapeText(s.Project))
	}
	if len(s.Labels) > 0 {
		p.field("  labels", "%s", render.EscapeText(train.JoinLabels(s.Labels)))
	}
	if len(s.Command) > 0 {
		p.field("  command", "%s", render.EscapeText(render.ShellWords(s.Command)))
	}
	if s.ScriptPath != "" {
		p.field("  script", "python %s", render.EscapeText(s.ScriptPath))
	}
	if s.Image != "" {
		p.field("  image", "%s", render.EscapeText(s.Image))
	}
	if len(s.Env) > 0 {
		p.field("  env", "%s (values: -o json)", render.EscapeText(strings.Join(slices.Sorted(maps.Keys(s.Env)), ", ")))
	}
	for _, name := range slices.Sorted(maps.Keys(s.SecretEnv)) {
		p.field("  secret", "%s from %s", render.EscapeText(name), render.EscapeText(s.SecretEnv[name]))
	}
	if s.Array != "" {
		p.field("  array", "%s", render.EscapeText(s.Array))
	}
	if m := s.ArrayMember; m != nil {
		p.field("  array", "job %d of the %d of %s", m.Index, m.Count, m.Array)
	}
	if told := trainingWords(s); told != "" {
		p.field("  training", "%s", told)
	}
	p.field("  devices", "%s", deviceWords(s))
	for _, n := range s.Notify {
		p.field("  notify", "%s", noticeWords(n))
	}
	if len(s.Ports) > 0 {
		p.field("  ports", "%s (node:container)", render.PortMapping(s.Ports))
	}
	line := fmt.Sprint(*s.Priority)
	if s.EstimatedHours > 0 {
		line += fmt.Sprintf(", estimated to take %s", render.Duration(s.EstimatedHours*3600))
	}
	p.field("  priority", "%s", line)
	line = fmt.Sprintf("at most %d in a row after crashes of its node or processes", *s.MaxRestarts)
	if s.Retries != nil {
		line += fmt.Sprintf(", %d after a status other than 0", *s.Retries)
	}
	p.field("  restarts", "%s", line)
}

// deviceWords says which devices a job asks for.
func deviceWords(s train.Spec) string {
	need := s.DeviceNeed()
	devices := need.Count(s.MaxDevices)
	if s.MaxDevices > s.MinDevices {
		devices = fmt.Sprintf("%d to %s", s.MinDevices, devices)
	}
	devices += fmt.Sprintf(", strategy %s, one process %s", s.Strategy, strings.ReplaceAll(string(s.Launch), "_", " "))
	switch {
	case s.DisableSharing:
		devices += ", not shared"
	case s.AllowSharing:
		devices += ", which it may share"
	}
	if s.EstimatedMemoryMiB > 0 && need.Kind != train.KindGPU {
		devices += fmt.Sprintf(", %s each", s.EstimatedMemory())
	}
	return devices
}

// noticeWords names a recipient of notices, and what they are about.
func noticeWords(n train.NotifySpec) string {
	kinds := []string{string(train.NoticeEnded)}
	if len(n.On) > 0 {
		kinds = kinds[:0]
	}
	for _, on := range n.On {
		kinds = append(kinds, string(on))
	}
	return fmt.Sprintf("%s of: %s", render.EscapeText(n.Webhook+n.Mail+n.Command), strings.Join(kinds, ", "))
}

// folders prints the job's folders, and the names by which the job sees them.
func (p *page) folders(d Job) {
	s := d.Job.Spec
	own := "(the scheduler's own folder for this job)"
	for _, f := range []struct{ label, host, mount, variable string }{
		{"  custom", cmp.Or(s.CustomDir, uploaded(s.Upload)), "/custom", "SWITCHYARD_CUSTOM_DIR"},
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
			as = "named by " + f.variable + " (this node cannot mount folders)"
		}
		p.field(f.label, "%s %s", render.EscapeText(f.host), as)
	}
	f := rpc.Folders{Work: s.WorkDir}
	if d.Folders != nil {
		f = *d.Folders
	}
	for _, line := range [][2]string{{"  work", f.Work}, {"  saved", f.Checkpoints}, {"  output", f.Output}} {
		if line[1] != "" {
			p.field(line[0], "%s", render.EscapeText(line[1]))
		}
	}
}

// uploaded names the copy of an uploaded folder.
func uploaded(hash string) string {
	if hash == "" {
		return ""
	}
	return fmt.Sprintf("(a copy of the uploaded folder %.12s)", hash)
}

// historyShown is the number of changes that the text shows.
const historyShown = 30

func (p *page) history(changes []train.Change, now time.Time) {
	if len(changes) == 0 {
		return
	}
	p.section("history")
	if hidden := len(changes) - historyShown; hidden > 0 {
		p.text(fmt.Sprintf("  .. %s before (-o json has all)\n", render.Plural(hidden, "change")))
		changes = changes[hidden:]
	}
	const width = 90
	var lines []string
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%d\t%s", render.Clock(c.At, now), render.Cell(c.Fact, width), c.State, c.Attempt, render.Dash(train.JoinDevices(c.Devices)), c.Epochs,
			render.Cell(c.Message, width)))
	}
	p.rows("AT\tFACT\tSTATE\tATTEMPT\tDEVICES\tEPOCHS\tMESSAGE", lines)
}

// logTail shows the end of the output of a job that failed.
func (p *page) logTail(j train.Job) {
	if j.State != train.StateFailed || j.LogTail == "" {
		return
	}
	p.section("end of the output (all of it: switchyard logs " + string(j.ID) + ")")
	for line := range strings.Lines(strings.TrimSuffix(render.EscapeLines(j.LogTail), "\n") + "\n") {
		p.text("  | " + line)
	}
}

// spread names devices and their node, or all nodes of a gang.
func spread(parts []train.Part, of string) string {
	if len(parts) > 1 {
		return train.JoinPlaces(parts)
	}
	return fmt.Sprintf("%s %s node %s", parts[0], of, parts[0].Node)
}

// card is what became of the job.
func (d Job) card() render.Card {
	c := render.Card{Job: d.Job, Account: d.Account, Report: d.Report, Folders: d.Folders}
	if d.Attempt != nil {
		c.Places = d.Attempt.Places()
	}
	return c
}
