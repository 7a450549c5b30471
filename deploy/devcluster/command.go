package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/deploy/devcluster/cluster"
)

// errUnwell makes the exit status say what the printed status says.
var errUnwell = errors.New("not everything runs")

// newCommand is what a person types. The folder is one for all of it.
func newCommand() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:           "devcluster",
		Short:         "A real Kubernetes on this machine, for developing and testing",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	command.PersistentFlags().StringVar(&dir, "dir", defaultDir(), "the cluster's folder")
	command.AddCommand(
		newUpCommand(&dir), newDownCommand(&dir), newStatusCommand(&dir),
		newStopCommand(&dir), newStartCommand(&dir), newRestartCommand(&dir),
		newLoadCommand(&dir), newImageCommand(&dir), newExecCommand(&dir),
		&cobra.Command{Use: "kubectl", Short: "kubectl, as it is; it reads KUBECONFIG", DisableFlagParsing: true},
	)
	return command
}

// defaultDir is a place for machine state, or one of the user's who may not write there.
func defaultDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/switchyard-devcluster"
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "switchyard-devcluster"
	}
	return filepath.Join(cache, "switchyard-devcluster")
}

func newUpCommand(dir *string) *cobra.Command {
	var options cluster.Options
	var noKubelet bool
	command := &cobra.Command{
		Use:   "up",
		Short: "start a cluster and wait until it takes pods",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			executable, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			options.Dir, options.Executable = *dir, executable
			options.Node = !noKubelet
			options.Progress = command.OutOrStdout()
			started, err := cluster.Up(command.Context(), options)
			if errors.Is(err, cluster.ErrRunning) {
				return fmt.Errorf("%w: devcluster status shows it, devcluster down ends it", err)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(command.OutOrStdout(), "\nexport KUBECONFIG=%s\n%s kubectl get nodes\n%s down --dir %s\n",
				started.Kubeconfig(), executable, executable, started.Dir)
			return nil
		},
	}
	flags := command.Flags()
	flags.BoolVar(&noKubelet, "no-kubelet", false, "only the control plane and fake nodes; needs no root")
	flags.IntVar(&options.FakeNodes, "kwok-nodes", 0, "nodes that kwok plays: their pods run nothing")
	flags.IntVar(&options.FakeGPUs, "kwok-gpus", 0, "GPUs that each of them shows, as resources switchyard.dev/gpu-kwok-0 and so on")
	flags.IntVar(&options.FakeGPUUnits, "kwok-gpu-units", 16, "units of each of those GPUs")
	return command
}

func newDownCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "end the cluster, or what is left of it, and remove its folder",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := cluster.Load(*dir)
			if errors.Is(err, cluster.ErrNone) {
				return nil
			}
			if err != nil {
				return err
			}
			return c.Down()
		},
	}
}

func newStatusCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "show what runs; the exit status is 0 if everything does",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := cluster.Load(*dir)
			if err != nil {
				return err
			}
			well, err := c.Status(command.Context(), command.OutOrStdout())
			if err == nil && !well {
				err = errUnwell
			}
			return err
		},
	}
}

func newStopCommand(dir *string) *cobra.Command {
	return programCommand(dir, "stop", "end one program, such as kube-apiserver or kubelet", (*cluster.Cluster).Stop)
}

func newStartCommand(dir *string) *cobra.Command {
	return programCommand(dir, "start", "run a program again that was stopped or has ended", (*cluster.Cluster).Start)
}

func newRestartCommand(dir *string) *cobra.Command {
	return programCommand(dir, "restart", "stop and start one program", func(c *cluster.Cluster, program string) error {
		return errors.Join(c.Stop(program), c.Start(program))
	})
}

func programCommand(dir *string, verb, short string, act func(*cluster.Cluster, string) error) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " PROGRAM",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := cluster.Load(*dir)
			if err != nil {
				return err
			}
			return act(c, args[0])
		},
	}
}

func newLoadCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "load ARCHIVE",
		Short: "give the node an image archive, as docker save makes it",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			c, err := cluster.Load(*dir)
			if err != nil {
				return err
			}
			return c.LoadImage(command.Context(), args[0])
		},
	}
}

func newImageCommand(dir *string) *cobra.Command {
	var image cluster.Image
	var out string
	build := &cobra.Command{
		Use:   "build",
		Short: "make an image around one static program (CGO_ENABLED=0) and give it to the node",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if out != "" {
				return writeImage(image, out)
			}
			c, err := cluster.Load(*dir)
			if err != nil {
				return err
			}
			return c.BuildImage(command.Context(), image)
		},
	}
	flags := build.Flags()
	flags.StringVar(&image.Name, "name", "", "the image's reference, for example localhost/switchyard/trainer:dev")
	flags.StringVar(&image.Binary, "binary", "", "the program; it becomes the entry point")
	flags.StringToStringVar(&image.Files, "file", nil, "a further file, as /path/in/image=path/here")
	flags.StringVar(&out, "out", "", "write the archive here instead")
	for _, name := range []string{"name", "binary"} {
		if err := build.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is defined above
		}
	}
	command := &cobra.Command{Use: "image", Short: "make images"}
	command.AddCommand(build)
	return command
}

func writeImage(image cluster.Image, path string) error {
	archive, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make image archive: %w", err)
	}
	return errors.Join(image.Write(archive), archive.Close())
}

func newExecCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "exec -- COMMAND [ARGUMENT ...]",
		Short: "run a command in the node's mounts and network",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := cluster.Load(*dir)
			if err != nil {
				return err
			}
			path, argv, err := c.Enter(args)
			if err != nil {
				return err
			}
			if err := syscall.Exec(path, argv, os.Environ()); err != nil {
				return fmt.Errorf("run %s: %w", strings.Join(args, " "), err)
			}
			return nil
		},
	}
}

// newHolderCommand is the process in whose namespaces the node lives; it reports to file descriptor 3.
func newHolderCommand() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:           cluster.NodeHolder,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := cluster.Load(dir)
			if err != nil {
				return err
			}
			const reportFile = 3
			return c.HoldNode(os.NewFile(reportFile, "report"), command.Context().Done())
		},
	}
	command.Flags().StringVar(&dir, "dir", "", "the cluster's folder")
	return command
}
