package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/sibling"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func downCommand(a *console.Console) *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the `switchyard up` of this machine; its jobs run on",
		Long: `Stops the ` + "`switchyard up`" + ` that the other commands reach, or the one of --data-dir. Running jobs are not touched: they run on, and the next
` + "`switchyard up`" + ` finds them again. Until then nobody starts, moves or cancels a job. What a service manager has started, it must stop itself.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := a.ContextPath()
			if dataDir != "" {
				path = filepath.Join(dataDir, installation.ContextName)
			}
			return down(cmd.Context(), a, path)
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "data folder of the `switchyard up` to stop (default: of the one that commands reach)")
	return cmd
}

// downResult says what was stopped, and which jobs run on.
type downResult struct {
	PID  int           `json:"pid,omitempty"`
	Jobs []train.JobID `json:"running_jobs"`
}

// stopTimeout bounds the wait for the end of a server, which waits for its services.
const stopTimeout = time.Minute

func down(ctx context.Context, a *console.Console, path string) error {
	c, err := installation.ReadContext(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	result := downResult{Jobs: []train.JobID{}}
	if isServer(c.PID) {
		result = downResult{PID: c.PID, Jobs: running(ctx, c)}
		if err := stopServer(ctx, c.PID); err != nil {
			return err
		}
	}
	switch n := len(result.Jobs); {
	case a.Output == "json":
		return a.PrintJSON(result)
	case result.PID == 0:
		fmt.Fprintln(a.Stdout, "no `switchyard up` runs here")
	case n == 0:
		fmt.Fprintf(a.Stdout, "stopped `switchyard up` (process %d)\n", result.PID)
	default:
		fmt.Fprintf(a.Stdout, "stopped `switchyard up` (process %d); %s: the next `switchyard up` finds them again\n", result.PID, runOn(n))
	}
	return nil
}

func runOn(jobs int) string {
	if jobs == 1 {
		return "1 job runs on"
	}
	return render.Plural(jobs, "job") + " run on"
}

// isServer reports whether a process is a `switchyard up`: once it has ended, its number may belong to another process.
func isServer(pid int) bool {
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name := strings.TrimSuffix(filepath.Base(program), " (deleted)") // an upgrade has replaced the file
	return err == nil && name == sibling.Server && strings.Contains(string(words), "\x00up\x00")
}

// running returns the jobs that have processes, as far as the bus says.
func running(ctx context.Context, c installation.Context) []train.JobID {
	ctx, cancel := context.WithTimeout(ctx, console.ListTimeout)
	defer cancel()
	ids := []train.JobID{}
	b, err := bus.Connect(ctx, bus.Config{URL: c.NATS, Keys: c.Keys, Name: "cli"})
	if err != nil {
		return ids
	}
	defer b.Close()
	attempts, _ := console.ListBucket(ctx, b, contract.Attempts)
	for _, attempt := range attempts {
		if attempt.Live() {
			ids = append(ids, attempt.Job)
		}
	}
	return ids
}

// stopServer asks a server to end, and waits for it.
func stopServer(ctx context.Context, pid int) error {
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		return exit.Errorf(exit.Failed, "its user, or root, may stop it", "stop `switchyard up` (process %d): %v", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for range tick.Every(ctx, 20*time.Millisecond) {
		if stat, err := proc.Root("/proc").Process(pid); err != nil || stat.Over() {
			return nil
		}
	}
	return exit.Errorf(exit.Failed, fmt.Sprintf("kill -9 %d: it harms no job", pid), "`switchyard up` (process %d) has not ended within %s", pid, stopTimeout)
}
