// Package console is what all commands share: the streams of the terminal, the format of the output, the connection
// to the bus, and reading records.
package console

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/install/units"
	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/sheet"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Console is the terminal, the output format and the bus of a command.
type Console struct {
	Nats string
	// Keys is the folder with the key by which the bus knows the caller.
	Keys    string
	Output  string
	Context string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	// accepted is set once the command line has been read without an error.
	accepted bool
}

// Command makes a command on a console.
type Command func(*Console) *cobra.Command

// Add adds commands below root.
func (a *Console) Add(root *cobra.Command, commands ...Command) {
	for _, command := range commands {
		cmd := command(a)
		a.completeLists(cmd)
		root.AddCommand(cmd)
	}
}

// Run runs a command line below root and returns the exit code. Unless root checks -o itself, it is table or json.
func (a *Console) Run(root *cobra.Command, args []string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	a.Stdout, a.Stderr = render.NewGuard(a.Stdout), render.NewGuard(a.Stderr)
	root.SilenceUsage, root.SilenceErrors = true, true
	root.PersistentFlags().StringVar(&a.Nats, "nats", a.Nats, "`URL` of the NATS server (default: $SWITCHYARD_NATS, else what switchyard up wrote down, else "+installation.DefaultURL+")")
	root.PersistentFlags().StringVar(&a.Keys, "keys", a.Keys, "`FOLDER` with the keys of the bus (default: $SWITCHYARD_KEYS, else what switchyard up wrote down)")
	root.PersistentFlags().StringVarP(&a.Output, "output", "o", "table", "table or json; some commands: csv or html too")
	if root.PersistentPreRunE == nil {
		root.PersistentPreRunE = a.Accept("table", "json")
	}
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.InitDefaultCompletionCmd(args...)
	err := unknownCommand(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	var coded *exit.Error
	if err != nil && !a.accepted && !errors.As(err, &coded) {
		err = exit.Usagef("%v", err)
	}
	if err != nil && err.Error() != "" { // what went wrong may have been said
		fmt.Fprintf(a.Stderr, "%s: %v\n", root.Name(), err)
	}
	return exit.Code(err)
}

// unknownCommand returns the error of a word that a group of commands does not have. Cobra refuses an unknown command
// below root alone; for the others it prints the help of their group, and a script with a typo would go on.
func unknownCommand(root *cobra.Command, args []string) error {
	group, rest, err := root.Find(args)
	if err != nil || group.Runnable() || group.ParseFlags(rest) != nil {
		return nil //nolint:nilerr // cobra finds the same error, or help is asked for
	}
	words := group.Flags().Args()
	if len(words) == 0 {
		return nil
	}
	var names []string
	for _, cmd := range group.Commands() {
		if !cmd.Hidden {
			names = append(names, cmd.Name())
		}
	}
	fix := fmt.Sprintf("`%s --help` lists its commands", group.CommandPath())
	if near := train.NearMiss(words[0], names); near != "" {
		fix = "did you mean " + near + "?"
	}
	return exit.Errorf(exit.Usage, fix, "unknown command %q for %q", words[0], group.CommandPath())
}

// Connect opens the bus for one command.
func (a *Console) Connect(ctx context.Context) (*bus.Bus, error) {
	urls := a.urls()
	url := urls[0]
	if i := slices.IndexFunc(urls, func(u string) bool { return installation.Answers(ctx, u) }); i > 0 {
		url = urls[i]
	}
	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// A bus that refuses the connection is not waited for: a person wants to know at once.
	b, err := bus.Connect(wait, bus.Config{URL: url, Keys: a.KeysFor(url), Name: "cli", Options: []nats.Option{nats.RetryOnFailedConnect(false)}})
	switch {
	case errors.Is(err, bus.ErrRefused):
		return nil, exit.Errorf(exit.Unreachable, "the person who runs the bus has its keys, by default in the folder keys of its data folder", "%v", err)
	case err != nil:
		for i, u := range urls {
			urls[i] = bus.Redacted(u)
		}
		start := "start it with `switchyard up`"
		if Served() {
			start = "`systemctl status switchyard` says whether it runs, `systemctl start switchyard` starts it"
		}
		return nil, exit.Errorf(exit.Unreachable, start+", or name it with --nats URL or SWITCHYARD_NATS", "no bus at %s", strings.Join(urls, ", nor at "))
	}
	// Whatever else is wrong with the bus, the command says itself.
	if err := b.Agree(wait); errors.Is(err, build.ErrOther) {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Served reports whether systemd runs a Switchyard for all users of this machine: nobody starts one by hand then.
func Served() bool {
	return slices.ContainsFunc([]string{units.LocalUnits, units.Packaged().Units}, func(dir string) bool { return installation.Exists(filepath.Join(dir, units.Service)) })
}

// KeysFor returns the folder with the keys of the bus at a URL: flag, environment, what the `switchyard up` of that bus
// wrote down, beside the context file.
func (a *Console) KeysFor(url string) string {
	if named := cmp.Or(a.Keys, os.Getenv("SWITCHYARD_KEYS")); named != "" {
		return named
	}
	// The last one is that of a package's service, which root can read.
	for _, path := range []string{a.ContextPath(), filepath.Join(installation.DataDir(), installation.ContextName), filepath.Join(units.DataDir, installation.ContextName)} {
		if c, err := installation.ReadContext(path); err == nil && c.NATS == url && c.Keys != "" {
			return c.Keys
		}
	}
	return string(identity.KeysOf(filepath.Dir(a.ContextPath())))
}

// Answers reports whether anything answers where the bus should be.
func (a *Console) Answers(ctx context.Context) bool {
	return slices.ContainsFunc(a.urls(), func(url string) bool { return installation.Answers(ctx, url) })
}

// URL returns where the bus should be, without a password: flag, environment, what `switchyard up` wrote down, default.
func (a *Console) URL() string { return bus.Redacted(a.urls()[0]) }

// urls returns where to look for the bus. The `switchyard up` that wrote down its address last may have ended, while
// another one has the default address.
func (a *Console) urls() []string {
	if named := cmp.Or(a.Nats, os.Getenv("SWITCHYARD_NATS")); named != "" {
		return []string{named}
	}
	c, err := installation.ReadContext(a.ContextPath())
	switch {
	case err != nil:
		return []string{installation.DefaultURL}
	case a.Context != "" || os.Getenv("SWITCHYARD_CONTEXT") != "" || c.NATS == installation.DefaultURL:
		return []string{c.NATS}
	}
	return []string{c.NATS, installation.DefaultURL}
}

// DataDir returns the data folder of the bus that the command reaches: environment, what the `switchyard up` of that
// bus wrote down, default.
func (a *Console) DataDir() string {
	if dir := os.Getenv("SWITCHYARD_DATA_DIR"); dir != "" {
		return dir
	}
	named := cmp.Or(a.Nats, os.Getenv("SWITCHYARD_NATS"))
	if c, err := installation.ReadContext(a.ContextPath()); err == nil && c.DataDir != "" && (named == "" || named == c.NATS) {
		return c.DataDir
	}
	return installation.DataDir()
}

// DataDirFlag declares --data-dir, which is empty unless it is given: DataDir then says which folder it is.
func DataDirFlag(flags *pflag.FlagSet, dir *string, about string) {
	flags.StringVar(dir, "data-dir", "", about+" (default: $SWITCHYARD_DATA_DIR, else the one that switchyard up wrote down)")
}

// PrintJSON writes v as indented JSON.
func (a *Console) PrintJSON(v any) error {
	e := json.NewEncoder(a.Stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// CSV writes rows; the first row is the header.
func (a *Console) CSV(rows [][]string) error {
	return sheet.Write(a.Stdout, rows)
}

// Show writes v as JSON if -o asks for it, else the rows as a table.
func (a *Console) Show(v any, header string, rows func(w io.Writer)) error {
	if a.Output == "json" {
		return a.PrintJSON(v)
	}
	return a.Table(header, rows)
}

// Table writes rows under a header, aligned. The buffer spares a system call for each cell.
func (a *Console) Table(header string, rows func(w io.Writer)) error {
	out := bufio.NewWriter(a.Stdout)
	w := &render.Columns{To: out}
	fmt.Fprintln(w, header)
	rows(w)
	if err := w.Flush(); err != nil {
		return err
	}
	return out.Flush()
}

// ContextPath returns the path of the context file.
func (a *Console) ContextPath() string {
	if a.Context != "" {
		return a.Context
	}
	return installation.ContextPath()
}

// Say prints a message with the time.
func (a *Console) Say(format string, args ...any) {
	fmt.Fprintf(a.Stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), render.EscapeText(fmt.Sprintf(format, args...)))
}

// Accept returns the check of a command line that -o is one of the formats, and that its numbers are finite: JSON has
// no others.
func (a *Console) Accept(formats ...string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if a.accepted = slices.Contains(formats, a.Output); a.accepted {
			return finite(cmd.Flags())
		}
		last := len(formats) - 1
		return exit.Usagef("-o %q: want %s or %s", a.Output, strings.Join(formats[:last], ", "), formats[last])
	}
}

// finite returns an error for the first flag whose number is none.
func finite(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(flag *pflag.Flag) {
		if x, bad := strconv.ParseFloat(flag.Value.String(), 64); err == nil && flag.Value.Type() == "float64" && bad == nil && (math.IsNaN(x) || math.IsInf(x, 0)) {
			err = exit.Usagef("--%s %s: want a finite number", flag.Name, flag.Value)
		}
	})
	return err
}

// Numbers reads the numbers of a flag, from 1 to most: 1..4 or 1,2,4, or both: 1..4,8. It returns each number once.
func Numbers(flag, text string, most int) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "..")
		if !isRange {
			high = low
		}
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || from < 1 || to < from || to > most {
			return nil, exit.Usagef("%s %q: want numbers from 1 to %d, as 1..4 or 1,2,4", flag, text, most)
		}
		for n := from; n <= to; n++ {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	return all, nil
}
