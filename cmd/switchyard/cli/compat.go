package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// The commands of the scheduler whose users' habits and scripts go on working.
const (
	compatRun    = "run-scheduler"
	compatState  = "scheduler-state"
	compatCancel = "scheduler-cancel-job"
	compatLogs   = "scheduler-get-logs"
)

func compatNames() []string { return []string{compatRun, compatState, compatCancel, compatLogs} }

// compatArgs gives the arguments for the root command. Called by one of the compatible names the program is that command.
func compatArgs(argv []string) []string {
	if len(argv) == 0 {
		return nil
	}
	name := filepath.Base(argv[0])
	if !slices.Contains(compatNames(), name) {
		return argv[1:]
	}
	return append([]string{"compat", name}, argv[1:]...)
}

func (a *app) compatCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compat",
		Short: "Install run-scheduler, scheduler-state, scheduler-cancel-job and scheduler-get-logs",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.compatInstallCommand(), a.compatRunCommand(), a.compatStateCommand(), a.compatCancelCommand(), a.compatLogsCommand())
	return cmd
}

func (a *app) compatInstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "install DIR",
		Short: "Write the four commands into a folder of your PATH",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			binary, err := os.Executable()
			if err != nil {
				return runtime(fmt.Errorf("find this program: %w", err))
			}
			written, err := installCompat(binary, args[0])
			if err != nil {
				return runtime(err)
			}
			if a.output == "json" {
				return a.printJSON(written)
			}
			for _, path := range written {
				_, _ = fmt.Fprintln(a.stdout, path)
			}
			return nil
		},
	}
}

// compatMark is in every wrapper, so that nothing else is written over.
const compatMark = "# written by `switchyard compat install`"

// installCompat writes the wrappers and gives their paths.
func installCompat(binary, dir string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder: %w", err)
	}
	written := []string{}
	for _, name := range compatNames() {
		path := filepath.Join(dir, name)
		there, err := os.ReadFile(path)
		switch {
		case err == nil && !bytes.Contains(there, []byte(compatMark)):
			return written, failure(ExitError, "name another folder, or remove it", "%s is there and is not ours", path)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return written, fmt.Errorf("look at %s: %w", path, err)
		}
		script := fmt.Sprintf("#!/bin/sh\n%s\nexec %s compat %s \"$@\"\n", compatMark, shellWord(binary), name)
		if err := replaceFile(path, script); err != nil {
			return written, err
		}
		written = append(written, path)
	}
	return written, nil
}

// replaceFile writes a program in one step, since somebody may be running the old one.
func replaceFile(path, script string) error {
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(temporary, []byte(script), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Chmod(temporary, 0o755); err != nil { // whatever the umask is
		return fmt.Errorf("make %s a program: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// compatFlags are the flags of run-scheduler, by the names that its users know. Truth values are words that follow their flag.
type compatFlags struct {
	image, script, custom, snapshots string
	batchSize, trainingSet, epochs   int
	singleGPU, noSharing             string
	memoryMiB                        int64
	ports                            string
	hours                            float64
}

func (a *app) compatRunCommand() *cobra.Command {
	var f compatFlags
	cmd := &cobra.Command{
		Use:    compatRun + " [flags] job_name",
		Short:  "Submit a job, as run-scheduler does; prints its id",
		Hidden: true,
		Long: `Submits a job and prints its id. --batch_size, --training_set_size and --max_epochs are required; --is_single_gpu and --disable_gpu_sharing are False
unless given; without --est_nhours the duration is learned alone. A job that is not single-GPU may get as many devices as the largest node has.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.spec(args[0], cmd.Flags().Changed)
			if err != nil {
				return failure(ExitUsage, "", "%v", err)
			}
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error { return a.compatSubmit(ctx, b, spec) })
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.image, "image_name", "", "name of the container image (default: the job is a process on the node)")
	fs.StringVar(&f.script, "script_path", "", "script to run with python, as the job sees it: in custom_dir it is /custom/..")
	fs.StringVar(&f.custom, "custom_dir", "", "folder that the job sees as /custom")
	fs.StringVar(&f.snapshots, "snapshots_dir", "", "folder that the job sees as /snapshots")
	fs.IntVar(&f.batchSize, "batch_size", 0, "samples per step (required)")
	fs.IntVar(&f.trainingSet, "training_set_size", 0, "samples of an epoch, without the validation set (required)")
	fs.IntVar(&f.epochs, "max_epochs", 0, "largest number of epochs (required)")
	fs.StringVar(&f.singleGPU, "is_single_gpu", "False", "True: the code does not support more than one GPU")
	fs.StringVar(&f.noSharing, "disable_gpu_sharing", "False", "True: keep the job alone on its GPUs")
	fs.Int64Var(&f.memoryMiB, "estimated_memory", 0, "estimated GPU memory of the job, in MiB")
	fs.StringVar(&f.ports, "port_mapping", "", "nodePort1:containerPort1,nodePort2:containerPort2,..")
	fs.Float64Var(&f.hours, "est_nhours", 0, "estimated duration in hours, greater than 1")
	return cmd
}

// spec turns the flags into a submission. How many devices a job may have is not known yet.
func (f compatFlags) spec(name string, given func(flag string) bool) (train.Spec, error) {
	var missing []string
	for _, flag := range []string{"batch_size", "training_set_size", "max_epochs"} {
		if !given(flag) {
			missing = append(missing, "--"+flag)
		}
	}
	if len(missing) > 0 {
		return train.Spec{}, fmt.Errorf("the following arguments are required: %s", strings.Join(missing, ", "))
	}
	s := train.Spec{
		Name: name, Image: f.image, ScriptPath: f.script, BatchSize: f.batchSize, TrainingSetSize: f.trainingSet, MaxEpochs: f.epochs,
		EstimatedMemoryMiB: f.memoryMiB, EstimatedHours: f.hours,
	}
	var err error
	if s.SingleDevice, err = truth("is_single_gpu", f.singleGPU); err != nil {
		return s, err
	}
	if s.DisableSharing, err = truth("disable_gpu_sharing", f.noSharing); err != nil {
		return s, err
	}
	for _, folder := range []struct {
		given string
		set   *string
	}{{f.custom, &s.CustomDir}, {f.snapshots, &s.SnapshotsDir}} {
		if folder.given == "" {
			continue
		}
		if *folder.set, err = filepath.Abs(folder.given); err != nil {
			return s, fmt.Errorf("folder %q: %w", folder.given, err)
		}
	}
	if f.ports != "" {
		if s.Ports, err = parsePorts(f.ports); err != nil {
			return s, fmt.Errorf("--port_mapping: %w", err)
		}
	}
	return s, nil
}

// truth reads a truth value in the spellings that people use for it.
func truth(flag, word string) (bool, error) {
	switch strings.ToLower(word) {
	case "true", "1", "yes", "y", "t":
		return true, nil
	case "false", "0", "no", "n", "f", "":
		return false, nil
	}
	return false, fmt.Errorf("--%s %q: want True or False", flag, word)
}

func (a *app) compatSubmit(ctx context.Context, b *bus.Bus, spec train.Spec) error {
	if !spec.SingleDevice {
		nodes, err := listBucket[train.Node](ctx, b, event.BucketNodes)
		if err != nil {
			return err
		}
		most := largestNode(nodes)
		if most == 0 {
			_, _ = fmt.Fprintln(a.stderr, "no node is known yet: the job is bounded to one device")
		}
		if most > 1 {
			spec.MaxDevices, spec.Strategy = most, train.StrategyAllReduce
		}
	}
	result, err := a.submit(ctx, b, spec, newID(spec.Name))
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(result)
	}
	_, err = fmt.Fprintln(a.stdout, result.ID)
	return err
}

// largestNode counts the devices of the node that has the most.
func largestNode(nodes []train.Node) int {
	most := 0
	for _, n := range nodes {
		most = max(most, len(n.Devices))
	}
	return most
}

// portMapping prints ports as --port_mapping takes them.
func portMapping(ports []train.PortMapping) string {
	pairs := make([]string, len(ports))
	for i, p := range ports {
		pairs[i] = strconv.Itoa(p.NodePort) + ":" + strconv.Itoa(p.ContainerPort)
	}
	return strings.Join(pairs, ",")
}
