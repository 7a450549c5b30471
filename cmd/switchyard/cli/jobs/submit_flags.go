package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

// submitFlags are the fields of a submission as flags. A flag that is set overrides the file.
type submitFlags struct {
	id         string
	printEvent bool
	dryRun     bool
	spec       train.Spec
	progress   train.ProgressSpec
	priority   int
	restarts   int
	retries    int
	stop       train.StopSpec
	adaptive   train.AdaptiveBatchSpec
	rate       string
	servers    int
	env        []string
	envFile    string
	secretEnv  []string
	after      []string
	labels     []string
	notify     []string
	notifyOn   []string
	upload     bool
	build      bool
	push       string
	ports      string
}

func (f *submitFlags) declare(fs *pflag.FlagSet) {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName { return pflag.NormalizedName(flagOf(name)) })
	f.declareProgram(fs)
	f.declareTraining(fs)
	f.declareNeeds(fs)
	f.declareRun(fs)
}

// declareProgram is for what runs, and under which names.
func (f *submitFlags) declareProgram(fs *pflag.FlagSet) {
	s := &f.spec
	fs.StringVar(&f.id, "id", "", "id of the job (default: the name and a random suffix)")
	fs.BoolVar(&f.printEvent, "print-event", false, "print the message instead of publishing it")
	fs.BoolVar(&f.dryRun, "dry-run", false, "submit nothing: show whether the job would be admitted, when it would start and end, and its energy")
	fs.StringVar(&s.Name, "name", "", "name of the job")
	fs.StringVar(&s.Family, "family", "", "training that the job is a variant of: jobs of a family predict each other (default: same code, image and data)")
	fs.StringVar(&s.Project, "project", "", "project of the job, by which lists and commands choose jobs")
	fs.StringSliceVar(&f.labels, "label", nil, "KEY=VALUE: label of the job, by which lists and commands choose jobs (repeatable)")
	fs.StringVar(&s.ScriptPath, "script-path", "", "Python script to run, as the job sees it")
	fs.StringVar(&s.Image, "image", "", "container image to run in")
	fs.BoolVar(&f.build, "build", false, "run in an image that is built here, by the Dockerfile of the job's folder: --work-dir, or that of the job file, or this one")
	fs.StringVar(&f.push, "push", "", "`REGISTRY/NAME[:TAG]` that the image of --build is pushed to; without it the image is on this machine alone")
	fs.StringVar(&s.WorkDir, "work-dir", "", "folder where the command starts")
	fs.StringVar(&s.CustomDir, "custom-dir", "", "folder that the job sees as /custom")
	fs.StringVar(&s.SnapshotsDir, "snapshots-dir", "", "folder that the job sees as /snapshots")
	fs.StringVar(&s.DatasetsDir, "datasets-dir", "", "folder that the job sees as /data")
	fs.StringVar(&s.DataURL, "data-url", "", "address of the data that the job sees as /data: http, https, hdfs, s3 or file; the node fetches it once")
	fs.StringVar(&s.LogFormat, "log-format", "", "bigdl or mxnet: read the epochs from the output that such programs write, for code that does not call the job API")
	fs.StringVar(&f.progress.Pattern, "progress", "", "regular expression for lines of output, with groups epoch, step, of, loss: 'epoch (?P<epoch>\\d+): loss (?P<loss>\\S+)'")
	fs.StringVar(&f.progress.CSV, "progress-csv", "", "pattern of CSV files with columns epoch, step, loss, which the program writes")
	fs.StringVar(&f.progress.TensorBoard, "progress-tensorboard", "", "folder of TensorBoard event files that the program writes")
	fs.StringVar(&s.Preempt, "preempt", "", "signal: ask the program to leave by SIGUSR1 and SIGTERM (default if it catches SIGUSR1 and --checkpoint is given)")
	fs.StringVar(&s.Checkpoint, "checkpoint", "", "pattern of the files that the program saves and goes on from, e.g. 'checkpoints/*.pt'")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "NAME=VALUE for the job's environment, or NAME for its value here (repeatable)")
	fs.StringArrayVar(&f.secretEnv, "secret-env", nil, "NAME=file:PATH, NAME=credential:NAME or NAME=secret:NAME/KEY: a variable whose value is read where the job starts, and is nowhere else (repeatable)")
	fs.StringVar(&f.envFile, "env-file", "", "file of NAME=VALUE lines for the job's environment; --env goes over it")
}

// declareTraining is for how it trains.
func (f *submitFlags) declareTraining(fs *pflag.FlagSet) {
	s := &f.spec
	fs.IntVar(&s.BatchSize, "batch-size", 0, "samples per device and pass")
	fs.IntVar(&s.GlobalBatchSize, "global-batch-size", 0, "samples per step on any number of devices (default for elastic jobs: --batch-size times --min-devices)")
	fs.BoolVar(&s.BatchPerDevice, "batch-per-device", false, "keep --batch-size on every device, so that steps grow with the devices")
	fs.IntVar(&f.adaptive.Max, "adaptive-batch", 0, "most samples per step: the planner chooses the batch with the devices, from --global-batch-size to this")
	fs.IntVar(&f.adaptive.MaxPerDevice, "adaptive-batch-per-device", 0, "most samples per device and pass for --adaptive-batch (default: --batch-size)")
	fs.StringVar(&f.rate, "learning-rate", "", "how the learning rate follows --adaptive-batch: adascale (default), sqrt, linear or none")
	fs.IntVar(&s.TrainingSetSize, "training-set-size", 0, "samples of an epoch")
	fs.IntVar(&s.MaxEpochs, "max-epochs", 0, "epochs to train")
	fs.IntVar(&s.MaxSteps, "max-steps", 0, "optimizer steps to train, if they come before the last epoch")
	fs.BoolVar(&s.SingleDevice, "single-device", false, "the code does not support more than one device")
	fs.BoolVar(&s.TuneEffectiveBatch, "tune-effective-batch", false, "also let the batch of a step grow while the job shares its device")
	fs.StringVar((*string)(&s.Strategy), "strategy", "", "none, all_reduce or parameter_server")
	fs.Float64Var(&f.stop.LossDecrease, "stop-loss-decrease", 0, "end the job once its training loss falls by less than this per epoch")
	fs.IntVar(&f.stop.Epochs, "stop-epochs", train.DefaultCalmEpochs, "consecutive epochs for --stop-loss-decrease")
	fs.IntVar(&f.servers, "parameter-servers", 0, "greatest number of servers of a parameter_server job (default: one for each worker)")
	fs.StringVar((*string)(&s.Launch), "launch", "", "per_node or per_device")
}

// declareNeeds is for what it needs.
func (f *submitFlags) declareNeeds(fs *pflag.FlagSet) {
	s := &f.spec
	fs.BoolVar(&s.AllowSharing, "allow-sharing", false, "let the job share its devices with other jobs that allow it; each gets its --estimated-memory-mib")
	fs.BoolVar(&s.ShareAcrossTenants, "share-across-tenants", false, "also with jobs of other tenants that allow it")
	fs.BoolVar(&s.DisableSharing, "disable-sharing", false, "keep the job alone on its devices")
	fs.Int64Var(&s.EstimatedMemoryMiB, "estimated-memory-mib", 0, "estimated device memory, MiB per device")
	fs.IntVar(&s.Cores, "cores", 0, "processor cores that each process may use (default: those of its CPU slots, or all)")
	fs.Int64Var(&s.MainMemoryMiB, "main-memory-mib", 0, "main memory that each process may use, in MiB; a job that takes more is ended")
	fs.StringVar(&f.ports, "ports", "", "NODE:CONTAINER[,NODE:CONTAINER..]: ports to expose")
	fs.IntVar(&s.Devices, "devices", 0, "number of devices, if it is fixed: --min-devices and --max-devices in one")
	fs.StringVar((*string)(&s.Device), "device", "", "kind of device: gpu or cpu (default: any)")
	fs.StringVar(&s.GPU, "gpu", "", "model of GPU, or several: 'H100|A100'")
	fs.StringVar(&s.GPUMemory, "gpu-memory", "", "memory that each GPU must have, e.g. 20GiB")
	fs.IntVar(&s.CPUs, "cpus", 0, "another name of --cores")
	fs.StringVar(&s.Memory, "memory", "", "main memory that each process may use, e.g. 32GiB; a job that takes more is ended")
	fs.IntVar(&s.MinDevices, "min-devices", 0, "least number of devices (default 1)")
	fs.IntVar(&s.MaxDevices, "max-devices", 0, "greatest number of devices (default: --min-devices)")
}

// declareRun is for when it runs, and what follows from its end.
func (f *submitFlags) declareRun(fs *pflag.FlagSet) {
	s := &f.spec
	fs.Float64Var(&s.EstimatedHours, "estimated-hours", 0, "estimated duration in hours, greater than 1")
	fs.StringVar(&s.Array, "array", "", "indices of an array of jobs, as 0-9, 0-99:10 or 1,3,7, with %N behind for at most N at once")
	fs.StringVar((*string)(&s.Continue), "continue", "", "begin from a copy of the checkpoints of this job, which has ended or is paused")
	fs.StringSliceVar(&f.after, "after", nil, "[ok:|any:|failed:]JOB[,..]: start after these jobs have succeeded (ok, the default), ended or failed")
	fs.TextVar(&s.TimeLimit, "time-limit", unit.Duration(0), "longest time that the job may run in all, e.g. 90m, 2h or 1d12h; then it is ended as failed (default: any)")
	fs.IntVar(&f.priority, "priority", train.DefaultPriority, "0 to 100, higher goes first")
	fs.BoolVar(&f.upload, "upload", false, "give the job a copy of its folder, less what its .switchyardignore names (default: if no node is this machine)")
	fs.StringArrayVar(&f.notify, "notify", nil, "recipient of notices: a URL, mailto:ADDRESS or command:NAME (repeatable)")
	fs.StringSliceVar(&f.notifyOn, "notify-on", nil, "what --notify tells: ended, failed, silent, preempted, late (default: ended)")
	fs.IntVar(&f.restarts, "max-restarts", train.DefaultMaxRestarts, "most consecutive restarts after failures of a node or process")
	fs.BoolVar(&s.RestartSilent, "restart-silent", false, "restart from the checkpoint if the code reports no step for twenty of its own, and a minute")
	fs.IntVar(&f.retries, "retries", 0, "restarts after exit statuses other than 0 (default: 1 if the attempt that failed saved a checkpoint)")
}

// flagOf returns the flag of a key of the job file, or of its second name.
func flagOf(name string) string {
	key := strings.ReplaceAll(name, "-", "_")
	return strings.ReplaceAll(cmp.Or(event.SecondNames(key), key), "_", "-")
}

// apply sets the fields of spec whose flags are set. It makes folders absolute: the job does not start in this
// process's folder.
func (f *submitFlags) apply(fs *pflag.FlagSet, spec *train.Spec) error {
	var wrong error
	others := f.others(spec)
	fs.Visit(func(flag *pflag.Flag) {
		set, other := others[flag.Name]
		switch {
		case !other:
			copyKey(spec, &f.spec, strings.ReplaceAll(flag.Name, "-", "_"))
		case wrong == nil:
			wrong = set()
		}
	})
	if wrong != nil {
		return wrong
	}
	if err := makeAbsolute(spec.Folders()); err != nil {
		return err
	}
	if f.upload && f.printEvent {
		return errors.New("--upload and --print-event exclude each other: the bus must have the folder that a message names")
	}
	if err := f.applySecrets(spec); err != nil {
		return err
	}
	if err := f.applyEnv(spec); err != nil {
		return err
	}
	return f.applyNotify(spec)
}

// copyKey copies the field with a key of the job file, if there is one.
func copyKey(to, from *train.Spec, key string) {
	target, source := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for field := range target.Type().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name == key {
			target.FieldByIndex(field.Index).Set(source.FieldByIndex(field.Index))
		}
	}
}

// others returns the flags that set anything else than the field of their name.
func (f *submitFlags) others(spec *train.Spec) map[string]func() error {
	sets := func(set func()) func() error { return func() error { set(); return nil } }
	later := sets(func() {})
	return map[string]func() error{
		"progress":                  sets(func() { progressSpecOf(spec).Pattern = f.progress.Pattern }),
		"progress-csv":              sets(func() { progressSpecOf(spec).CSV = f.progress.CSV }),
		"progress-tensorboard":      sets(func() { progressSpecOf(spec).TensorBoard = f.progress.TensorBoard }),
		"adaptive-batch":            sets(func() { adaptiveOf(spec).Max = f.adaptive.Max }),
		"adaptive-batch-per-device": sets(func() { adaptiveOf(spec).MaxPerDevice = f.adaptive.MaxPerDevice }),
		"learning-rate":             sets(func() { adaptiveOf(spec).LearningRate = train.LearningRateRule(f.rate) }),
		"stop-loss-decrease":        sets(func() { stopOf(spec).LossDecrease = f.stop.LossDecrease }),
		"stop-epochs":               sets(func() { stopOf(spec).Epochs = f.stop.Epochs }),
		"priority":                  sets(func() { spec.Priority = &f.priority }),
		"max-restarts":              sets(func() { spec.MaxRestarts = &f.restarts }),
		"retries":                   sets(func() { spec.Retries = &f.retries }),
		"parameter-servers":         sets(func() { spec.ParameterServers = &train.ServersSpec{Max: f.servers} }),
		// The second name of a key takes the place of what the file says by the first.
		"devices":    sets(func() { spec.Devices, spec.MinDevices, spec.MaxDevices = f.spec.Devices, 0, 0 }),
		"gpu-memory": sets(func() { spec.GPUMemory, spec.EstimatedMemoryMiB = f.spec.GPUMemory, 0 }),
		"cpus":       sets(func() { spec.CPUs, spec.Cores = f.spec.CPUs, 0 }),
		"memory":     sets(func() { spec.Memory, spec.MainMemoryMiB = f.spec.Memory, 0 }),
		"label":      func() error { return f.applyLabels(spec) },
		"after": func() (err error) {
			spec.After, err = parseAfter(f.after)
			return err
		},
		"ports": func() (err error) {
			if spec.Ports, err = ParsePorts(f.ports); err != nil {
				err = fmt.Errorf("--ports %q: %w", f.ports, err)
			}
			return err
		},
		"env": later, "secret-env": later, "notify": later, "upload": later, "build": later, "push": later,
	}
}

func (f *submitFlags) applyLabels(spec *train.Spec) error {
	labels, err := api.Labels(f.labels)
	if err != nil {
		return fmt.Errorf("--label %w", err)
	}
	spec.Labels = train.Merged(spec.Labels, labels)
	return nil
}

// applyEnv adds the variables of the file and of the flags, which go over it.
func (f *submitFlags) applyEnv(spec *train.Spec) error {
	var pairs []string
	if f.envFile != "" {
		var err error
		if pairs, err = readEnvFile(f.envFile); err != nil {
			return err
		}
	}
	for _, pair := range slices.Concat(pairs, f.env) {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			if value, ok = os.LookupEnv(name); !ok {
				return fmt.Errorf("--env %q: want NAME=VALUE, or the name of a variable that is set here", pair)
			}
		}
		if spec.Env == nil {
			spec.Env = map[string]string{}
		}
		spec.Env[name] = value
	}
	return nil
}

// applySecrets adds the secret variables. A path is meant from here.
func (f *submitFlags) applySecrets(spec *train.Spec) error {
	for _, pair := range f.secretEnv {
		name, source, ok := strings.Cut(pair, "=")
		if path, file := strings.CutPrefix(source, "file:"); ok && file {
			absolute, err := filepath.Abs(path)
			if err != nil {
				return fmt.Errorf("--secret-env %s: %w", name, err)
			}
			source = "file:" + absolute
		}
		if _, err := train.ParseSecret(source); !ok || err != nil {
			return fmt.Errorf("--secret-env %s: want NAME=file:PATH, NAME=credential:NAME or NAME=secret:NAME/KEY", name)
		}
		spec.SecretEnv = train.Merged(spec.SecretEnv, map[string]string{name: source})
	}
	return nil
}

// applyNotify adds the recipients of notices.
func (f *submitFlags) applyNotify(spec *train.Spec) error {
	if len(f.notifyOn) > 0 && len(f.notify) == 0 {
		return fmt.Errorf("--notify-on %s: want --notify, which names a recipient", strings.Join(f.notifyOn, ","))
	}
	for _, target := range f.notify {
		n, ok := train.ParseNotify(target)
		if !ok {
			return fmt.Errorf("--notify %q: want a URL of http or https, mailto:ADDRESS or command:NAME", target)
		}
		for _, on := range f.notifyOn {
			n.On = append(n.On, train.NoticeKind(on))
		}
		spec.Notify = append(spec.Notify, n)
	}
	return nil
}

// makeAbsolute makes relative folders absolute, seen from the folder of this process.
func makeAbsolute(folders []*string) error {
	for _, dir := range folders {
		if *dir == "" {
			continue
		}
		absolute, err := filepath.Abs(*dir)
		if err != nil {
			return fmt.Errorf("folder %q: %w", *dir, err)
		}
		*dir = absolute
	}
	return nil
}

// progressSpecOf returns where the progress is read. It adds an empty one if the spec has none.
func progressSpecOf(spec *train.Spec) *train.ProgressSpec {
	if spec.Progress == nil {
		spec.Progress = &train.ProgressSpec{}
	}
	return spec.Progress
}

// stopOf returns the stop rule of a spec. It adds an empty rule if the spec has none.
func stopOf(spec *train.Spec) *train.StopSpec {
	if spec.Stop == nil {
		spec.Stop = &train.StopSpec{}
	}
	return spec.Stop
}

// adaptiveOf returns the adaptive batch of a spec. It adds an empty one if the spec has none.
func adaptiveOf(spec *train.Spec) *train.AdaptiveBatchSpec {
	if spec.AdaptiveBatch == nil {
		spec.AdaptiveBatch = &train.AdaptiveBatchSpec{}
	}
	return spec.AdaptiveBatch
}

// parseAfter reads the jobs to wait for, each as END:JOB or JOB.
func parseAfter(words []string) (*train.AfterSpec, error) {
	after := &train.AfterSpec{}
	for _, word := range words {
		on, job, given := strings.Cut(word, ":")
		if !given {
			on, job = train.AfterOK, word
		}
		if job == "" || !after.Add(train.Dependency{Job: train.JobID(job), On: on}) {
			return nil, fmt.Errorf("--after %q: want ok:JOB, any:JOB or failed:JOB", word)
		}
	}
	return after, nil
}

// ParsePorts reads NODE:CONTAINER[,NODE:CONTAINER..].
func ParsePorts(s string) ([]train.PortMapping, error) {
	var ports []train.PortMapping
	for pair := range strings.SplitSeq(s, ",") {
		node, container, ok := strings.Cut(pair, ":")
		n, err1 := strconv.Atoi(node)
		c, err2 := strconv.Atoi(container)
		if !ok || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%q: want NODE:CONTAINER, two port numbers", pair)
		}
		ports = append(ports, train.PortMapping{NodePort: n, ContainerPort: c})
	}
	return ports, nil
}

// jobID returns the id of the flag, or a new one.
func (f *submitFlags) jobID(spec train.Spec) (train.JobID, error) {
	if f.id == "" {
		return NewID(spec.Name), nil
	}
	id, err := train.ParseJobID(f.id)
	if err != nil {
		return "", exit.Usagef("--id: %v", err)
	}
	return id, nil
}
