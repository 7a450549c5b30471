package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver/backup"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/services/admission"
)

func (a *app) repairCommand() *cobra.Command {
	r := &repair{app: a}
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Say what the bus has lost, and mend what can be mended",
		Long: `Reads every message of every stream and bucket, compares the register with the facts that it follows from, and reads what the services of this
machine have noticed. It says what is wrong and what it does about it, and does it unless --check is given:

a missing stream or bucket   is made again; what it held comes back as docs/records.md says
the register                 is folded again from JOBS by admission
a stream that ends too early goes on after the newest sequence that was seen, so that no fact is taken for an old one
a bucket that was made again gets back what the newest readable snapshot before has of it, unless the embedded bus has done that
any other loss               is noted: services that waited because of it work again

With --from FILE the keys that buckets lack are put back from a backup or a snapshot (in bus-snapshots of the data folder). Exit code 1: something is wrong.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.dir = cmp.Or(r.dir, a.DataDir())
			if r.from != "" {
				if _, _, err := backup.Check(r.from); err != nil {
					return exit.Errorf(exit.Failed, "name a file of `switchyard backup`, or one in bus-snapshots of the data folder", "%v", err)
				}
			}
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
				r.bus = b
				return r.run(ctx)
			})
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&r.check, "check", false, "only say what is wrong")
	fs.StringVar(&r.from, "from", "", "put the missing keys of buckets back from this `FILE`")
	console.DataDirFlag(fs, &r.dir, "data folder with what the services have noticed")
	return cmd
}

// repair is one run of the command.
type repair struct {
	*app
	bus       *bus.Bus
	check     bool
	from, dir string
	// blind is set if no service has noted in dir what it saw of the bus.
	blind bool
	// forgot is set if services have noticed that JOBS has lost facts.
	forgot  bool
	found   int
	copying conc.WaitGroup
}

// say prints a finding and what is done about it, and does it.
func (r *repair) say(ctx context.Context, finding, doing string, do func(context.Context) error) error {
	r.found++
	fmt.Fprintf(r.Stdout, "%s\n    %s\n", finding, doing)
	if r.check {
		return nil
	}
	if err := do(ctx); err != nil {
		return exit.Errorf(exit.Failed, "", "%s: %v", finding, err)
	}
	return nil
}

func (r *repair) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{r.missing, r.unreadable, r.losses, r.keys, r.register} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	switch {
	case r.found == 0 && r.blind:
		fmt.Fprintln(r.Stdout, "nothing is wrong with what is there")
		return nil
	case r.found == 0:
		fmt.Fprintln(r.Stdout, "nothing is wrong")
		return nil
	case r.check:
		return exit.Errorf(exit.Failed, "`switchyard repair` without --check does what it says above", "%s", render.Plural(r.found, "finding"))
	}
	return nil
}

// missing makes missing streams again.
func (r *repair) missing(ctx context.Context) error {
	names, err := r.bus.Streams(ctx)
	if err != nil {
		return err
	}
	for _, name := range bus.Watched() {
		if !slices.Contains(names, name) {
			if err := r.say(ctx, name+" is missing", "it is made again", r.bus.Ensure); err != nil {
				return err
			}
		}
	}
	return nil
}

// unreadable reads all streams, whose checksums the server checks.
func (r *repair) unreadable(ctx context.Context) error {
	names, err := r.bus.Streams(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := backup.Verify(ctx, r.bus, name); err != nil {
			doing := "start the embedded bus again: it cuts out what is damaged, and keeps the rest. Elsewhere: restore a backup (`switchyard restore`)"
			if err := r.say(ctx, fmt.Sprintf("%s cannot be read: %v", name, err), doing, func(context.Context) error { return nil }); err != nil {
				return err
			}
		}
	}
	return nil
}

// losses handles what services have noticed.
func (r *repair) losses(ctx context.Context) error {
	losses, newest, err := seenBy(r.dir)
	if err != nil {
		return err
	}
	if r.blind = len(newest) == 0; r.blind {
		fmt.Fprintf(r.Stderr, "no service has noted in %s what it saw of the bus: name their data folder with --data-dir, else what is lost without a trace is not found\n", r.dir)
	}
	snapshots, err := snapshotsIn(filepath.Join(r.dir, snapshotsFolder))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	at := time.Now()
	for _, name := range bus.Watched() {
		l, lost := losses[name]
		if !lost {
			continue
		}
		r.forgot = r.forgot || name == event.StreamJobs
		doing, do := r.mending(ctx, l, newest[name], snapshots)
		err := r.say(ctx, l.String(), doing, func(ctx context.Context) error {
			if err := do(ctx); err != nil {
				return err
			}
			return r.bus.Repaired(ctx, name, at)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mending says what can be done about a loss, and does it. newest is the newest sequence that was seen of the stream.
func (r *repair) mending(ctx context.Context, l bus.Loss, newest uint64, snapshots []snapshot) (doing string, do func(context.Context) error) {
	if ends, err := r.bus.LastSequence(ctx, l.Stream); err == nil && l.Gone && ends < newest {
		return fmt.Sprintf("the stream goes on after %d", newest), func(ctx context.Context) error { return r.raise(ctx, l.Stream, newest) }
	}
	if was, err := r.bus.WasPutBack(ctx, l); err == nil && was {
		return "it has back what a snapshot has of it; what was written since the snapshot is lost: it is noted", func(context.Context) error { return nil }
	}
	bucket, is := strings.CutPrefix(l.Stream, "KV_")
	if older := before(snapshots, l.At); is && !l.Gone && len(older) > 0 {
		return "what it lacks is put back from the newest snapshot before that can be read", func(ctx context.Context) error {
			put, err := putBack(ctx, r.bus, bucket, older)
			if err == nil {
				fmt.Fprintf(r.Stdout, "    %d records from %s\n", put.records, put.from)
			}
			if put.unusable != nil {
				fmt.Fprintf(r.Stdout, "    unusable: %v\n", put.unusable)
			}
			return err
		}
	}
	return "it is noted", func(context.Context) error { return nil }
}

// seenBy returns what the services of a data folder remember of the bus: losses, and the newest sequences.
func seenBy(dir string) (losses map[string]bus.Loss, newest map[string]uint64, err error) {
	files, err := filepath.Glob(filepath.Join(dir, run.SeenFolder, "*.json"))
	if err != nil {
		return nil, nil, err
	}
	losses, newest = map[string]bus.Loss{}, map[string]uint64{}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		found, last, err := bus.Remembered(data)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, l := range found {
			// The bus may have put a bucket back after who noticed its loss first.
			if known, is := losses[l.Stream]; !is || !known.Gone && (l.Gone || l.At.Before(known.At)) {
				losses[l.Stream] = l
			}
		}
		for name, sequence := range last {
			newest[name] = max(newest[name], sequence)
		}
	}
	return losses, newest, nil
}

// raise makes a stream go on after a sequence. Its snapshot stays in the data folder until the stream is there again.
func (r *repair) raise(ctx context.Context, stream string, last uint64) error {
	path := filepath.Join(r.dir, "repair-"+stream+".s2")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was synced
	from, to := io.Pipe()
	var s bus.Snapshot
	failed := make(chan error, 1)
	copying, stop := context.WithCancel(ctx)
	defer stop()
	r.copying.Go(func() {
		var err error
		s, err = r.bus.Snapshot(copying, stream, to)
		failed <- errors.Join(err, to.CloseWithError(err))
	})
	err = backup.RaiseLast(from, file, last)
	_ = from.CloseWithError(err)
	if err = errors.Join(err, <-failed, file.Sync()); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := r.bus.Delete(ctx, stream); err != nil {
		return err
	}
	if err := r.bus.Restore(ctx, stream, s, nil, file); err != nil {
		return fmt.Errorf("%w; its messages are in %s", err, path)
	}
	return os.Remove(path)
}

// keys puts back what buckets lack.
func (r *repair) keys(ctx context.Context) error {
	if r.from == "" {
		return nil
	}
	for _, k := range contract.Buckets() {
		if k.Made == contract.Observed {
			continue
		}
		lacking, err := backup.Lacking(ctx, r.bus, r.from, k.Name)
		if err != nil {
			return err
		}
		if lacking == 0 {
			continue
		}
		err = r.say(ctx, fmt.Sprintf("bucket %s lacks %s", k.Name, render.Plural(lacking, "key")), "what it lacks is put back from "+r.from, func(ctx context.Context) error {
			put, err := backup.PutBack(ctx, r.bus, r.from, k.Name)
			fmt.Fprintf(r.Stdout, "    %s\n", render.Plural(put, "record"))
			if k.Name == string(contract.Jobs) {
				err = errors.Join(err, r.bus.FoldAgain(ctx, k.Name))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// foldPatience is how long repair waits for admission to fold the register again.
const foldPatience = 15 * time.Second

// whole returns nil if the register is whole, and waits for that if it may become so.
func (r *repair) whole(ctx context.Context) (err error) {
	waiting, cancel := context.WithTimeout(ctx, foldPatience)
	defer cancel()
	for range tick.Every(waiting, 200*time.Millisecond) {
		if err = r.bus.Whole(ctx, string(contract.Jobs)); !errors.Is(err, bus.ErrPartial) || r.check {
			break
		}
	}
	return err
}

// register compares the register with its stream.
func (r *repair) register(ctx context.Context) error {
	again := func(ctx context.Context) error { return r.bus.FoldAgain(ctx, string(contract.Jobs)) }
	if err := r.whole(ctx); err != nil {
		return r.say(ctx, fmt.Sprintf("the register is not whole: %v", err), "admission folds it again from JOBS: is it running?", func(context.Context) error { return nil })
	}
	differences, lost, err := admission.Compare(ctx, r.bus)
	if err != nil {
		return err
	}
	if r.forgot { // once it is noted, the differences by lost facts are known
		differences = append(differences, lost...)
	}
	for i, text := range differences {
		do := func(context.Context) error { return nil }
		if i == 0 {
			do = again
		}
		if err := r.say(ctx, "the register differs from JOBS: "+text, "what the record lacks is folded again; what it has beyond the facts stays", do); err != nil {
			return err
		}
	}
	return nil
}
