package fit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/switchyard-dl/switchyard/libs/joblog/epochs"
	"github.com/switchyard-dl/switchyard/libs/joblog/progress"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func (c *checker) identity() {
	if n := utf8.RuneCountInString(c.spec.Name); n < 1 || n > MaxNameLength || !printable(c.spec.Name) {
		c.refuse("InvalidName", "name", "name the experiment, e.g. resnet50-lr3",
			"want 1 to %d printable characters, found %s", MaxNameLength, quote(c.spec.Name))
	}
	c.own("user", c.spec.User, c.who.User)
	c.own("tenant", c.spec.Tenant, c.who.Tenant)
	if uid := c.spec.UID; uid != 0 && uid != c.who.UID {
		c.refuse("NotYourself", "uid", "leave it out: the kernel names the submitter", "the body says user %d, who did not submit it", uid)
	}
	if p := c.spec.Project; utf8.RuneCountInString(p) > MaxNameLength || !printable(p) {
		c.refuse("InvalidName", "project", "e.g. thesis", "want 1 to %d printable characters, found %s", MaxNameLength, quote(p))
	}
}

// own refuses a body that names another user or tenant.
func (c *checker) own(field, found, own string) {
	switch {
	case found == "" || found == own:
	case !c.who.TrustBodies:
		c.refuse("NotYourself", field, "leave it out: the submitter's identity supplies it",
			"the body says %s, but submissions here come from %s", quote(found), quote(own))
	case utf8.RuneCountInString(found) > MaxNameLength || !printable(found):
		c.refuse("InvalidName", field, "", "want 1 to %d printable characters, found %s", MaxNameLength, quote(found))
	}
}

// printable reports whether s can be shown to people as it is. Spaces at the ends and characters that reorder text are
// refused.
func printable(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return false
		}
	}
	return strings.TrimSpace(s) == s
}

func quote(s string) string { return fmt.Sprintf("%.80q", s) }

func (c *checker) program() {
	hasCommand, hasScript := len(c.spec.Command) > 0, c.spec.ScriptPath != ""
	switch {
	case hasCommand && hasScript:
		c.refuse("TwoPrograms", "script_path", "give one of them", "both command and script_path are given")
	case !hasCommand && !hasScript && c.spec.Image == "":
		c.refuse("NoProgram", "command", `e.g. "command": ["python", "train.py"]`,
			"neither command, nor script_path, nor an image with its own program")
	}
	if f := c.spec.LogFormat; f != "" && !slices.Contains(epochs.Formats(), f) {
		c.refuse("UnknownLogFormat", "log_format", "leave it out if the code calls the job API", "want %s, found %s",
			strings.Join(epochs.Formats(), " or "), quote(f))
	}
	c.leaving()
	c.shell()
	if hasCommand {
		c.command()
	}
	if hasScript {
		c.script()
	}
	c.text("image", c.spec.Image)
	if strings.ContainsAny(c.spec.Image, " \t\r\n") || strings.HasPrefix(c.spec.Image, "-") {
		c.refuse("InvalidImage", "image", "e.g. docker.io/pytorch/pytorch:2.4.0", "%s is not an image name", quote(c.spec.Image))
	}
}

func (c *checker) shell() {
	if s := c.spec.Shell; s != nil && s.Key != "" && len(s.Key) != len(train.Hash("")) {
		c.refuse("InvalidKey", "shell.key", "`switchyard shell` makes it", "want a SHA-256 as 64 hexadecimal digits, found %s", quote(s.Key))
	}
}

// leaving checks how a job without calls of the job API saves its state and leaves.
func (c *checker) leaving() {
	if p := c.spec.Preempt; p != "" && p != train.PreemptBySignal {
		c.refuse("UnknownPreempt", "preempt", "leave it out if the code calls the job API", "want %s, found %s", train.PreemptBySignal, quote(p))
	} else if p != "" && c.spec.Checkpoint == "" {
		c.refuse("NoCheckpoint", "checkpoint", `name the files that the code saves and goes on from, e.g. "checkpoints/*.pt"`,
			"preempt: %s needs it: without a checkpoint a job that leaves loses its work", p)
	} else if p != "" && c.spec.Image != "" {
		c.refuse("NotSupported", "preempt", "let the code call the job API, or run it without image", "the processes in a container get no signal from here")
	}
	if c.spec.Checkpoint != "" {
		c.files("checkpoint", c.spec.Checkpoint, "let the code report its checkpoints to the job API")
	}
	c.progress()
}

// progress checks where the progress of a program is read.
func (c *checker) progress() {
	p := c.spec.Progress
	if p == nil {
		return
	}
	ways := slices.DeleteFunc([]string{p.Pattern, p.CSV, p.TensorBoard}, func(way string) bool { return way == "" })
	switch _, err := progress.ParsePattern(p.Pattern); {
	case len(ways) != 1:
		c.refuse("Contradiction", "progress", "e.g. progress: {csv: metrics.csv}", "want one of pattern, csv and tensorboard, found %d", len(ways))
	case p.Pattern != "" && (err != nil || len(p.Pattern) > maxPattern):
		c.refuse("InvalidPattern", "progress.pattern", `e.g. 'epoch (?P<epoch>\d+): loss (?P<loss>\S+)'`,
			"want a regular expression with a group named epoch or step, at most %d bytes: %.200v", maxPattern, cmp.Or(err, errLong))
	case c.spec.LogFormat != "":
		c.refuse("NotSupported", "progress", "leave one of them out", "log_format also reads the output")
	case p.CSV != "":
		c.files("progress.csv", p.CSV, "let the code call the job API")
	case p.TensorBoard != "":
		c.files("progress.tensorboard", p.TensorBoard, "let the code call the job API")
	case c.onlyPods():
		c.refuse("NotSupported", "progress.pattern", "let the code call the job API", "all nodes are those of Kubernetes: only log_format is read from the output of pods")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Names)) {
		if !slices.Contains([]string{"epoch", "step", "of", "loss"}, name) {
			c.refuse("UnknownName", "progress.names", "", "want names for epoch, step, of or loss, found %s", quote(name))
		}
	}
}

var errLong = errors.New("it is longer")

// onlyPods reports whether jobs run as pods only.
func (c *checker) onlyPods() bool {
	nodes := c.where.Nodes
	return len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n train.Node) bool { return !inCluster(n) })
}

// files checks a pattern of files that the job writes.
func (c *checker) files(field, pattern, hint string) {
	c.text(field, pattern)
	if _, err := path.Match(pattern, ""); err != nil || len(pattern) > maxPattern || slices.Contains(strings.Split(pattern, "/"), "..") {
		c.refuse("InvalidPattern", field, `e.g. "checkpoints/*.pt"`,
			"want a pattern of file names with * ? [..] and without .., at most %d bytes, found %s", maxPattern, quote(pattern))
	} else if path.IsAbs(pattern) && !under(pattern, "/snapshots") && !under(pattern, "/custom") {
		c.refuse("InvalidPattern", field, "give it relative to the working folder or the snapshots folder",
			"want a path below /snapshots or /custom, or a relative one, found %s", quote(pattern))
	}
	if c.onlyPods() {
		c.refuse("NotSupported", field, hint,
			"all nodes are those of Kubernetes: Switchyard sends no signals to the processes of a pod, and does not look at its files")
	}
}

func (c *checker) command() {
	if len(c.spec.Command) > maxCommandSize {
		c.refuse("OutOfRange", "command", "", "want at most %d words, found %d", maxCommandSize, len(c.spec.Command))
	}
	if c.spec.Command[0] == "" {
		c.refuse("NoProgram", "command[0]", "", "the program has an empty name")
	}
	for i, word := range c.spec.Command {
		c.text(fmt.Sprintf("command[%d]", i), word)
	}
}

// text refuses text that no process can receive.
func (c *checker) text(field, s string) {
	if strings.ContainsRune(s, 0) {
		c.refuse("InvalidText", field, "", "holds a NUL character")
	}
}

// script checks script_path, which is a path as the job sees it: /custom is custom_dir.
func (c *checker) script() {
	script := c.spec.ScriptPath
	c.text("script_path", script)
	inside, below := c.insideCustom(script)
	switch {
	case below:
		c.refuse("HostPath", "script_path", "use "+inside,
			"%s is a path on the host; the job sees custom_dir at /custom", quote(script))
	case under(script, "/custom") && c.spec.CustomDir == "" && c.spec.Upload == "":
		c.refuse("NoCustomDir", "script_path", "give custom_dir, the folder that is mounted at /custom",
			"%s is below /custom, but custom_dir is not given", quote(script))
	case c.spec.Image == "" && !path.IsAbs(script):
		c.refuse("RelativePath", "script_path", "", "want an absolute path as the job sees it, found %s", quote(script))
	case c.paths.Script.Fault != "" && c.inRoots(c.paths.Script):
		c.missing("NoSuchFile", "script_path", "", script, c.paths.Script)
	case c.paths.Script.IsFolder && c.inRoots(c.paths.Script):
		c.refuse("NotAFile", "script_path", "", "%s is a folder", quote(script))
	}
}

// insideCustom returns the path in the job of a host path that lies in custom_dir.
func (c *checker) insideCustom(script string) (string, bool) {
	for _, dir := range []string{c.spec.CustomDir, c.paths.CustomDir.Resolved} {
		if dir == "" || path.Clean(dir) == "/custom" || !under(script, dir) {
			continue
		}
		return path.Join("/custom", strings.TrimPrefix(path.Clean(script), path.Clean(dir))), true
	}
	return "", false
}

// under reports whether p lies in dir or is dir, both absolute.
func under(p, dir string) bool {
	p, dir = path.Clean(p), path.Clean(dir)
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

func (c *checker) folders() {
	c.upload()
	c.folder("custom_dir", c.spec.CustomDir, c.paths.CustomDir)
	c.folder("snapshots_dir", c.spec.SnapshotsDir, c.paths.SnapshotsDir)
	c.folder("datasets_dir", c.spec.DatasetsDir, c.paths.DatasetsDir)
	c.data()
	switch dir := c.spec.WorkDir; {
	case dir == "":
	case c.spec.Image != "" || c.mounted(dir):
		c.text("work_dir", dir)
		if !path.IsAbs(dir) {
			c.refuse("RelativePath", "work_dir", "", "want an absolute path, found %s", quote(dir))
		}
	default:
		c.folder("work_dir", dir, c.paths.WorkDir)
	}
}

// data checks the address of the job's data. Where it leads is checked when it is fetched.
func (c *checker) data() {
	address := c.spec.DataURL
	if address == "" {
		return
	}
	u := c.paths.Data
	switch {
	case !slices.Contains(train.DataSchemes(), u.Scheme) || u.Host == "" && u.Scheme != "file" || len(address) > maxCommandSize:
		c.refuse("InvalidAddress", "data_url", "", "want SCHEME://HOST/PATH, with a scheme of %s", strings.Join(train.DataSchemes(), ", "))
	case u.Named:
		c.refuse("InvalidAddress", "data_url", "everybody who sees the job sees it: use a signed address that expires", "want an address without a password")
	case c.spec.DatasetsDir != "":
		c.refuse("Contradiction", "data_url", "give one of them", "the job sees the data at /data, but datasets_dir is given too")
	case u.Scheme == "file":
		c.dataHere(u)
	}
}

// dataHere checks data that is a file or a folder of the node.
func (c *checker) dataHere(u Address) {
	switch {
	case u.Host != "" || !path.IsAbs(u.Path):
		c.refuse("RelativePath", "data_url", "", "want file:///PATH, found %s", quote(c.spec.DataURL))
	case !c.inRoots(u.File):
		c.refuse("PathNotAllowed", "data_url", "name one below "+strings.Join(c.paths.Roots, ", "), "%s lies in none of the folders that jobs may use", quote(u.Path))
	case u.File.Fault != "":
		c.missing("NoSuchFile", "data_url", "", u.Path, u.File)
	}
}

// upload checks the folder that the submitter has put on the bus.
func (c *checker) upload() {
	switch {
	case c.spec.Upload == "":
	case !train.IsUpload(c.spec.Upload):
		c.refuse("InvalidUpload", "upload", "`switchyard submit --upload` uploads a folder and names its hash",
			"want the hash of an uploaded folder, 64 hexadecimal digits, found %s", quote(c.spec.Upload))
	case c.spec.CustomDir != "":
		c.refuse("Contradiction", "upload", "give one of them", "the uploaded folder is the job's custom_dir, but custom_dir is given too")
	}
}

// mounted reports whether a path lies in one of the folders that the job sees under another name.
func (c *checker) mounted(p string) bool {
	return (c.spec.CustomDir != "" || c.spec.Upload != "") && under(p, "/custom") ||
		c.spec.SnapshotsDir != "" && under(p, "/snapshots") ||
		c.spec.DatasetsDir != "" && under(p, "/data")
}

func (c *checker) folder(field, asked string, found Path) {
	switch {
	case asked == "":
	case !path.IsAbs(asked):
		c.refuse("RelativePath", field, "", "want an absolute path, found %s", quote(asked))
	case !c.inRoots(found): // whatever is there, or is not
		c.refuse("OutsideRoots", field,
			"use a folder below "+train.JoinOr(c.paths.Roots)+", or ask the operator for --allow-root",
			"%s lies outside the allowed folders", quote(asked))
	case found.Fault != "":
		c.missing("NoSuchFolder", field, "create it first, readable for the scheduler", asked, found)
	case !found.IsFolder:
		c.refuse("NotAFolder", field, "", "%s is no folder", quote(asked))
	case found.Exposes:
		c.refuse("DataFolder", field, "name another folder, or one below it",
			"%s contains or lies in the data folder of Switchyard, with the secrets of other jobs", quote(asked))
	}
}

// missing refuses a path that could not be followed to its end.
func (c *checker) missing(code, field, hint, asked string, found Path) {
	if found.Hangs {
		code, hint = "FileSystemHangs", "submit again once `ls` answers there on the scheduler's machine, or ask the operator to mount its file system again"
	}
	c.refuse(code, field, hint, "%s: %s", quote(asked), found.Fault)
}

// inRoots reports whether a path leads into an allowed folder.
func (c *checker) inRoots(p Path) bool {
	return slices.ContainsFunc(c.paths.Roots, func(root string) bool { return under(p.Resolved, root) })
}

func (c *checker) environment() {
	for _, name := range slices.Sorted(maps.Keys(c.spec.Env)) {
		field := "env." + name
		if len(field) > 100 {
			field = field[:100]
		}
		switch {
		case !train.Identifier(name):
			c.refuse("InvalidVariable", strings.ToValidUTF8(field, ""), "",
				"want letters, digits and '_', not beginning with a digit; found %s", quote(name))
		case Reserved(name):
			c.refuse("ReservedVariable", field, "leave it out: the job gets it from the scheduler", "the scheduler sets %s", name)
		}
		if c.text(field, c.spec.Env[name]); c.spec.Image != "" && !c.onlyPods() && strings.ContainsAny(c.spec.Env[name], "\n\r") {
			c.refuse("InvalidText", field, "put the text into a file of the job's folders", "has several lines, which the environment of a container cannot hold")
		}
	}
}

// Reserved reports whether the scheduler itself sets an environment variable. Parameters of trials,
// SWITCHYARD_PARAM_.., belong to their jobs.
func Reserved(name string) bool {
	switch name {
	case "JOB_UUID", "JOB_RESTARTED", "EPOCHS_DONE", "EPOCHS_TO_BE_DONE", "HEARTBEAT_FREQ", "NODELIST", "NUM_GPUS", "NUM_NODES",
		"BATCH_SIZE", "TRAINING_SET_SIZE", "RESERVED_MEM", "TF_CONFIG", "PL_TORCH_DISTRIBUTED_BACKEND", "MASTER_ADDR", "MASTER_PORT",
		"WORLD_SIZE", "NODE_RANK", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES":
		return true
	}
	return strings.HasPrefix(name, "SWITCHYARD_") && !strings.HasPrefix(name, "SWITCHYARD_PARAM_")
}

// hints checks the numbers that may be left out unless something else in the job rests on them.
func (c *checker) hints() {
	s := c.spec
	least := func(needed bool) int64 {
		if needed {
			return 1
		}
		return 0
	}
	planned := s.AdaptiveBatch != nil || s.Strategy == train.StrategyParameterServer
	tried := s.Energy != nil && len(s.Energy.BatchSizes) > 0
	c.between("batch_size", int64(s.BatchSize), least(planned || tried || s.GlobalBatchSize > 0), MaxSamples, "the number of samples per device and pass")
	c.between("training_set_size", int64(s.TrainingSetSize), least(planned || tried), MaxSamples,
		"the number of samples of an epoch, validation excluded")
	c.between("max_epochs", int64(s.MaxEpochs), least(planned || s.Stop != nil), MaxEpochs, "the number of epochs to train")
	c.between("max_steps", int64(s.MaxSteps), 0, MaxSamples, "the number of optimizer steps to train")
	if s.MaxSteps > 0 && s.AdaptiveBatch != nil {
		c.refuse("Contradiction", "max_steps", "give max_epochs alone", "the size of a step is the planner's to choose with adaptive_batch")
	}
}

func (c *checker) amounts() {
	s := c.spec
	if h := s.EstimatedHours; h != 0 && !(h > 1 && h <= MaxHours) {
		c.refuse("OutOfRange", "estimated_hours", "leave it out for a short job",
			"want more than 1 and at most %d hours, found %g", MaxHours, h)
	}
	c.between("estimated_memory_mib", s.EstimatedMemoryMiB, 0, MaxMemoryMiB, "")
	if stop := s.Stop; stop != nil {
		if !(stop.LossDecrease > 0 && stop.LossDecrease <= MaxLoss) {
			c.refuse("OutOfRange", "stop.loss_decrease",
				"the fall of the loss per epoch below which training is at its end",
				"want more than 0 and at most %g, found %g", MaxLoss, stop.LossDecrease)
		}
		c.between("stop.epochs", int64(stop.Epochs), 0, MaxEpochs, "")
	}
	if s.Priority != nil {
		c.between("priority", int64(*s.Priority), 0, 100, "")
	}
	if d := s.Deadline; d != nil && !(d.After(c.who.At) && d.Before(c.who.At.Add(MaxDeadline))) {
		c.refuse("OutOfRange", "deadline", "leave it out if the job may end at any time", "want a time after the submission at %s, within %d hours, found %s",
			c.who.At.UTC().Format(time.RFC3339), MaxHours, d.UTC().Format(time.RFC3339))
	}
	if l := time.Duration(s.TimeLimit); l < 0 || l > MaxDeadline {
		c.refuse("OutOfRange", "time_limit", "leave it out if the job may run for any time", "want more than 0 and at most %d hours, found %s", MaxHours, s.TimeLimit)
	}
	if s.MaxRestarts != nil {
		c.between("max_restarts", int64(*s.MaxRestarts), 0, MaxRestarts, "")
	}
	if s.Retries != nil {
		c.between("retries", int64(*s.Retries), 0, MaxRestarts, "")
	}
}

// shortForms refuses a job that says the same in two ways, and amounts that cannot be read.
func (c *checker) shortForms(s train.Spec) {
	for _, f := range []struct {
		short, long  string
		given, again bool
	}{
		{"devices", "min_devices", s.Devices != 0, s.MinDevices != 0},
		{"devices", "max_devices", s.Devices != 0, s.MaxDevices != 0},
		{"cpus", "cores", s.CPUs != 0, s.Cores != 0},
		{"memory", "main_memory_mib", s.Memory != "", s.MainMemoryMiB != 0},
		{"gpu_memory", "estimated_memory_mib", s.GPUMemory != "", s.EstimatedMemoryMiB != 0},
	} {
		if f.given && f.again {
			c.refuse("Contradiction", f.short, "leave one of them out", "it stands for %s, which is also given", f.long)
		} else if f.given {
			c.written[f.long] = f.short
		}
	}
	for _, left := range []struct{ field, text string }{{"gpu_memory", c.spec.GPUMemory}, {"memory", c.spec.Memory}} {
		if _, err := unit.ParseBytes(left.text); left.text != "" && err != nil {
			c.refuse("InvalidAmount", left.field, "", "%v", err)
		}
	}
}

// kinds checks what the job asks of its devices.
func (c *checker) kinds() {
	need := c.spec.DeviceNeed()
	c.oneOf("device", string(need.Kind), string(train.KindGPU), string(train.KindCPU))
	if c.spec.GPU != "" && len(need.Models) == 0 || len(c.spec.GPU) > maxModels || !printable(c.spec.GPU) {
		c.refuse("InvalidName", "gpu", "e.g. H100, or H100|A100", "want models of GPUs with | between them, at most %d bytes, found %s", maxModels, quote(c.spec.GPU))
	}
	if need.Kind == train.KindCPU && (c.spec.GPU != "" || c.written["estimated_memory_mib"] != "") {
		c.refuse("Contradiction", "device", "leave it out", "it is cpu, but gpu or gpu_memory is given")
	}
}

// maxModels is the longest list of models.
const maxModels = 256

func (c *checker) devices() {
	s := c.spec
	c.kinds()
	c.between("min_devices", int64(s.MinDevices), 0, MaxDevices, "")
	c.between("max_devices", int64(s.MaxDevices), 0, MaxDevices, "")
	c.between("cores", int64(s.Cores), 0, MaxCores, "")
	c.between("main_memory_mib", s.MainMemoryMiB, 0, MaxMemoryMiB, "")
	if s.MaxDevices > 0 && s.MinDevices > s.MaxDevices {
		c.refuse("Contradiction", "min_devices", "", "min_devices is %d, max_devices %d", s.MinDevices, s.MaxDevices)
	}
	if most := max(s.MinDevices, s.MaxDevices); most > 1 {
		field := "max_devices"
		if s.MaxDevices < most {
			field = "min_devices"
		}
		if s.SingleDevice {
			c.refuse("Contradiction", field, "leave out single_device if the code can use several devices",
				"single_device is set, but %s is %d", field, most)
		}
		if s.Strategy == train.StrategyNone {
			c.refuse("Contradiction", field, "use strategy all_reduce, or one device",
				"strategy none uses one device, but %s is %d", field, most)
		}
	}
	c.sharing()
	c.oneOf("strategy", string(s.Strategy), string(train.StrategyNone), string(train.StrategyAllReduce),
		string(train.StrategyParameterServer))
	c.servers()
	c.oneOf("launch", string(s.Launch), string(train.LaunchPerNode), string(train.LaunchPerDevice))
}

// sharing checks that a job that may share its devices states its memory need, and has no parameter servers.
func (c *checker) sharing() {
	s := c.spec
	if s.ShareAcrossTenants && !s.AllowSharing {
		c.refuse("Contradiction", "share_across_tenants", "set allow_sharing too", "the job shares its devices with nobody")
	}
	switch {
	case !s.AllowSharing:
	case s.DisableSharing:
		c.refuse("Contradiction", "allow_sharing", "leave one of them out", "disable_sharing is also set")
	case s.EstimatedMemoryMiB == 0:
		c.refuse("OutOfRange", "estimated_memory_mib", "give the memory that the job needs on a device",
			"want more than 0 for a job that may share its devices")
	case s.SharedMemory() == 0 && s.EstimatedMemoryMiB > 0:
		c.refuse("NotSupported", "allow_sharing", "leave it out, or use strategy all_reduce",
			"jobs with parameter servers share no device")
	}
}

// labels checks the job's own labels and those of the nodes that it asks for against the grammar of Kubernetes.
func (c *checker) labels(field, what, hint string, found map[string]string) {
	if len(found) > MaxLabels {
		c.refuse("OutOfRange", field, "", "want at most %d, found %d", MaxLabels, len(found))
		return
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if !train.IsLabel(key, found[key]) {
			c.refuse("InvalidLabel", field, hint, "%s: %s is not a valid %s", quote(key), quote(found[key]), what)
		}
	}
}

// servers checks the requested parameter servers.
func (c *checker) servers() {
	s := c.spec.ParameterServers
	if s == nil {
		return
	}
	if c.spec.Strategy != train.StrategyParameterServer {
		c.refuse("Contradiction", "parameter_servers", "use strategy parameter_server",
			"only jobs with that strategy have parameter servers; this job has %s", quote(string(c.spec.Strategy)))
	}
	c.between("parameter_servers.max", int64(s.Max), 0, MaxDevices, "")
	c.between("parameter_servers.cores", int64(s.Cores), 0, MaxDevices, "")
	c.between("parameter_servers.memory_mib", s.MemoryMiB, 0, MaxMemoryMiB, "")
}

// oneOf refuses an unknown word; an empty one means that the field was left out.
func (c *checker) oneOf(field, found string, known ...string) {
	if found == "" || slices.Contains(known, found) {
		return
	}
	hint := ""
	if near := train.NearMiss(found, known); near != "" && len(found) <= MaxNameLength {
		hint = "did you mean " + near + "?"
	}
	c.refuse("UnknownValue", field, hint, "want %s, found %s", train.JoinOr(known), quote(found))
}

func (c *checker) ports() {
	if len(c.spec.Ports) > MaxPorts {
		c.refuse("OutOfRange", "ports", "", "want at most %d, found %d", MaxPorts, len(c.spec.Ports))
		return
	}
	first := map[int]int{}
	pods := len(c.where.Nodes) == 0 || slices.ContainsFunc(c.where.Nodes, inCluster)
	for i, p := range c.spec.Ports {
		field := fmt.Sprintf("ports[%d]", i)
		c.between(field+".node_port", int64(p.NodePort), FirstNodePort, 65535, "")
		c.between(field+".container_port", int64(p.ContainerPort), 1, 65535, "")
		if j, twice := first[p.NodePort]; twice {
			c.refuse("Contradiction", field+".node_port", "", "port %d of the node is already used by ports[%d]", p.NodePort, j)
			continue
		}
		first[p.NodePort] = i
		if (c.spec.Image == "" || !pods) && p.NodePort >= FirstNodePort && p.ContainerPort > 0 && p.ContainerPort <= 65535 && p.NodePort != p.ContainerPort {
			c.refuse("NotSupported", field, fmt.Sprintf("listen on port %d and give %[1]d for both", p.NodePort),
				"a job that is no pod listens on the node itself: port %d cannot lead to port %d", p.NodePort, p.ContainerPort)
		}
	}
}
