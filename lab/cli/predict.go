package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/lab/predictions"
)

// The tables go between these marks.
const (
	opening = "<!-- predictions: by make bench-predict -->\n"
	closing = "<!-- end of predictions -->\n"
)

func (a *app) predictCommand() *cobra.Command {
	var data, page string
	cmd := &cobra.Command{
		Use:   "predict",
		Short: "Play measured trainings through the profiler's fits and show how far predictions were off over the life of a job",
		Long: `Plays measured trainings through the fits of the live profiler, epoch by epoch, and prints tables of how far its predictions were off. With --into the tables replace the marked
part of a Markdown page, and pictures are written beside it.`,
		Example: `  switchyard-lab predict --data ../shared/data
  switchyard-lab predict --data ../shared/data --into docs/predictions.md`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if data == "" {
				return exit.Usagef("--data, or SWITCHYARD_DATA, must name the folder of published measurements")
			}
			report, err := predictions.Study(os.DirFS(data))
			if err != nil {
				return exit.Usagef("--data %s: %v", data, err)
			}
			if page == "" {
				_, err := fmt.Fprint(a.Stdout, report.Tables())
				return err
			}
			if err := insert(page, report.Tables()); err != nil {
				return err
			}
			return report.Draw(filepath.Dir(page))
		},
	}
	cmd.Flags().StringVar(&data, "data", os.Getenv("SWITCHYARD_DATA"), "folder of the published measurements (default: $SWITCHYARD_DATA)")
	cmd.Flags().StringVar(&page, "into", "", "Markdown `file` whose marked part is replaced")
	return cmd
}

// insert replaces the marked part of a page.
func insert(page, tables string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	before, rest, opened := strings.Cut(string(text), opening)
	_, after, closed := strings.Cut(rest, closing)
	if !opened || !closed {
		return fmt.Errorf("write tables into %s: the lines %q and %q are missing", page, opening, closing)
	}
	if err := os.WriteFile(page, []byte(before+opening+"\n"+tables+closing+after), 0o644); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}
