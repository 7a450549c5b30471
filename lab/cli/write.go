package cli

import (
	"context"
	"io"
	"runtime"

	"github.com/sourcegraph/conc/pool"
)

// result holds the result of a command in each form that -o names. The first of the rows is their header.
type result struct {
	json   any
	rows   [][]string
	header string
	table  func(w io.Writer)
}

func (a *app) write(r result) error {
	switch a.Output {
	case "json":
		return a.PrintJSON(r.json)
	case "csv":
		return a.CSV(r.rows)
	}
	return a.Table(r.header, r.table)
}

// each calls f for 0 to n-1, as many at once as there are processors.
func each(ctx context.Context, n int, f func(i int) error) error {
	p := pool.New().WithContext(ctx).WithCancelOnError().WithMaxGoroutines(runtime.GOMAXPROCS(0))
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
