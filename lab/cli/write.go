package cli

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	goruntime "runtime"
	"strconv"
	"text/tabwriter"

	"github.com/sourcegraph/conc/pool"
	"golang.org/x/term"
)

// printJSON writes v as indented JSON.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return runtime(e.Encode(v))
}

// table writes rows under a header, aligned.
func (a *app) table(header string, rows func(w io.Writer)) error {
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, header)
	rows(w)
	return runtime(w.Flush())
}

// exactly prints a number such that it reads back as the same.
func exactly(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// duration prints seconds as people say them: 3.2s, 45s, 12m03s, 2h31m, 3d04h.
func duration(seconds float64) string {
	if !(seconds > 0) {
		return "0s"
	}
	const century = 100 * 365 * 24 * 3600.0
	seconds = math.Min(seconds, century)
	if seconds < 9.95 {
		return fmt.Sprintf("%.1fs", seconds)
	}
	s := int(math.Round(seconds))
	if s < 60 {
		return fmt.Sprintf("%ds", s)
	}
	if s < 3600 {
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	m := int(math.Round(seconds / 60))
	if m < 24*60 {
		return fmt.Sprintf("%dh%02dm", m/60, m%60)
	}
	h := int(math.Round(seconds / 3600))
	return fmt.Sprintf("%dd%02dh", h/24, h%24)
}

// plural counts things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// isTerminal reports whether a person looks at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// result is what a command found, in each form that -o names. The first row of rows is their header.
type result struct {
	json   any
	rows   [][]string
	header string
	table  func(w io.Writer)
}

func (a *app) write(r result) error {
	switch a.output {
	case "json":
		return a.printJSON(r.json)
	case "csv":
		return runtime(csv.NewWriter(a.stdout).WriteAll(r.rows))
	}
	return a.table(r.header, r.table)
}

// each calls f for 0 to n-1, as many at once as there are processors.
func each(ctx context.Context, n int, f func(i int) error) error {
	p := pool.New().WithContext(ctx).WithCancelOnError().WithMaxGoroutines(goruntime.GOMAXPROCS(0))
	for i := range n {
		p.Go(func(ctx context.Context) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return f(i)
		})
	}
	return p.Wait()
}
