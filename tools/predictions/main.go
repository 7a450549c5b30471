// Command predictions plays measured trainings through the fits of the live profiler, epoch by epoch, and writes how far the predictions were off over the
// life of the job: tables between the marks in docs/predictions.md, and pictures beside it. The measurements are not part of the repository.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The tables go between these marks.
const (
	opening = "<!-- predictions: by make bench-predict -->\n"
	closing = "<!-- end of predictions -->\n"
)

func main() {
	data := flag.String("data", os.Getenv("SWITCHYARD_DATA"), "folder of the published measurements")
	page := flag.String("into", "", "Markdown file whose marked part is written anew; pictures go beside it. Without it, tables go to standard output")
	flag.Parse()
	if err := run(*data, *page); err != nil {
		fmt.Fprintln(os.Stderr, "predictions:", err)
		os.Exit(1)
	}
}

func run(data, page string) error {
	if data == "" {
		return fmt.Errorf("SWITCHYARD_DATA does not name the folder of published measurements")
	}
	s, err := load(os.DirFS(data))
	if err != nil {
		return err
	}
	r := s.study()
	if page == "" {
		fmt.Print(r.tables())
		return nil
	}
	if err := insert(page, r.tables()); err != nil {
		return err
	}
	return r.draw(filepath.Dir(page))
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
		return fmt.Errorf("write tables into %s: it has not the lines %q and %q", page, opening, closing)
	}
	if err := os.WriteFile(page, []byte(before+opening+"\n"+tables+closing+after), 0o644); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}
