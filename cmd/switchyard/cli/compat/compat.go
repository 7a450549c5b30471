// Package compat holds the commands under which users of kubernetesdlprofile know the scheduler.
package compat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/jobs"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// The commands of an older scheduler, whose users and scripts go on working.
const (
	nameRun    = "run-scheduler"
	nameState  = "scheduler-state"
	nameCancel = "scheduler-cancel-job"
	nameLogs   = "scheduler-get-logs"
)

func compatNames() []string { return []string{nameRun, nameState, nameCancel, nameLogs} }

// Args returns the arguments for the root command. If the program's name is one of the compatible commands, it is
// that command.
func Args(argv []string) []string {
	if len(argv) == 0 {
		return nil
	}
	name := filepath.Base(argv[0])
	if !slices.Contains(compatNames(), name) {
		return argv[1:]
	}
	return append([]string{"compat", name}, argv[1:]...)
}

// Command makes the command of this package.
func Command(a *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compat",
		Short: "Install run-scheduler, scheduler-state, scheduler-cancel-job and scheduler-get-logs",
	}
	cmd.AddCommand(compatInstallCommand(a), compatRunCommand(a), compatStateCommand(a), compatCancelCommand(a), compatLogsCommand(a))
	return cmd
}

func compatInstallCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "install DIR",
		Short: "Write the four commands into a folder of your PATH",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			binary, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			written, err := installCompat(binary, args[0])
			if err != nil {
				return err
			}
			if a.Output == "json" {
				return a.PrintJSON(written)
			}
			for _, path := range written {
				fmt.Fprintln(a.Stdout, path)
			}
			return nil
		},
	}
}

// compatMark is in every wrapper. A file without it is not overwritten.
const compatMark = "# written by `switchyard compat install`"

// installCompat writes the wrappers and returns their paths.
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
			return written, exit.Errorf(exit.Failed, "name another folder, or remove it", "%s exists and was not written by this command", path)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return written, fmt.Errorf("look at %s: %w", path, err)
		}
		script := fmt.Sprintf("#!/bin/sh\n%s\nexec %s compat %s \"$@\"\n", compatMark, render.ShellWord(binary), name)
		if err := installation.WriteFile(path, []byte(script)); err != nil {
			return written, err
		}
		if err := os.Chmod(path, 0o755); err != nil {
			return written, fmt.Errorf("make %s a program: %w", path, err)
		}
		written = append(written, path)
	}
	return written, nil
}

// compatFlags are the flags of run-scheduler, by the names that its users know. Boolean values are separate words
// after their flag.
type compatFlags struct {
	image, script, custom, snapshots string
	batchSize, trainingSet, epochs   int
	singleGPU, noSharing             string
	memoryMiB                        int64
	ports                            string
	hours                            float64
}

func compatRunCommand(a *console.Console) *cobra.Command {
	var f compatFlags
	cmd := &cobra.Command{
		Use:    nameRun + " [flags] job_name",
		Short:  "Submit a job, as run-scheduler does; prints its id",
		Hidden: true,
		Long: `Submits a job and prints its id. --batch_size, --training_set_size and --max_epochs are required; --is_single_gpu and --disable_gpu_sharing are False
unless given; without --est_nhours the duration is only learned. A job that is not single-GPU may get as many devices as the largest node has.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.spec(args[0], cmd.Flags().Changed)
			if err != nil {
				return exit.Usagef("%v", err)
			}
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return compatSubmit(ctx, a, y, spec) })
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

// spec turns the flags into a submission, except for the number of devices.
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
	// Jobs find the datasets folder of their user's home at /data.
	if home, found := os.LookupEnv("HOME"); found && installation.IsFolder(filepath.Join(home, "datasets")) {
		s.DatasetsDir = filepath.Join(home, "datasets")
	}
	// Without an estimate nobody knows how much of a GPU to set aside.
	s.AllowSharing = !s.DisableSharing && s.EstimatedMemoryMiB > 0
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
		if s.Ports, err = jobs.ParsePorts(f.ports); err != nil {
			return s, fmt.Errorf("--port_mapping: %w", err)
		}
	}
	return s, nil
}

// truth reads a boolean in any usual spelling.
func truth(flag, word string) (bool, error) {
	switch strings.ToLower(word) {
	case "true", "1", "yes", "y", "t":
		return true, nil
	case "false", "0", "no", "n", "f", "":
		return false, nil
	}
	return false, fmt.Errorf("--%s %q: want True or False", flag, word)
}

func compatSubmit(ctx context.Context, a *console.Console, y console.Yard, spec train.Spec) error {
	if !spec.SingleDevice {
		nodes, err := y.Nodes(ctx)
		if err != nil {
			return err
		}
		most := largestNode(nodes)
		if most == 0 {
			fmt.Fprintln(a.Stderr, "no node is known yet: the job gets at most one device")
		}
		if most > 1 {
			spec.MaxDevices, spec.Strategy, spec.BatchPerDevice = most, train.StrategyAllReduce, true
		}
	}
	result, err := jobs.Submit(ctx, y, spec, jobs.NewID(spec.Name))
	if err != nil {
		return err
	}
	if a.Output == "json" {
		return a.PrintJSON(result)
	}
	_, err = fmt.Fprintln(a.Stdout, result.ID)
	return err
}

// largestNode counts the devices of the node that has the most.
func largestNode(nodes []*train.Node) int {
	most := 0
	for _, n := range nodes {
		most = max(most, len(n.Devices))
	}
	return most
}
