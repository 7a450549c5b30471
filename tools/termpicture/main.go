// Command termpicture turns what `switchyard demo` wrote to a terminal (standard input) into an SVG (standard output): one picture from the middle of the run,
// in which most jobs are shown, and the closing report.
package main

import (
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
)

const (
	charWidth  = 7.2
	lineHeight = 17
	margin     = 16
)

func main() {
	data, err := io.ReadAll(os.Stdin)
	if err == nil {
		_, err = io.WriteString(os.Stdout, picture(string(data)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "termpicture:", err)
		os.Exit(1)
	}
}

// picture draws the frame in which most lines tell of a job that is not queued and not ended, and what follows the last frame.
func picture(raw string) string {
	up := regexp.MustCompile(`\x1b\[\d+A`)
	raw = strings.ReplaceAll(strings.ReplaceAll(raw, "\r", ""), "\x1b[K", "")
	frames := up.Split(raw, -1)
	best, at := -1, 0
	for i, f := range frames[:max(len(frames)-1, 1)] {
		active := strings.Count(f, " running ") + 2*strings.Count(f, " preempt") + strings.Count(f, " profiling ") + strings.Count(f, "\n")
		if active > best {
			best, at = active, i
		}
	}
	last := frames[len(frames)-1]
	if _, report, ok := strings.Cut(last, "\n\n"); ok {
		last = report
	}
	lines := append([]string{"$ make demo"}, strings.Split(strings.TrimRight(frames[at], "\n"), "\n")...)
	lines = append(append(lines, ""), strings.Split(strings.TrimRight(last, "\n"), "\n")...)
	return svg(lines)
}

func svg(lines []string) string {
	columns := 0
	for _, l := range lines {
		columns = max(columns, len([]rune(l)))
	}
	width, height := float64(columns)*charWidth+2*margin, len(lines)*lineHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="A run of the demo in a terminal" width="%.0f" height="%d" viewBox="0 0 %.0f %d">`+"\n", width, height, width, height)
	b.WriteString(`<rect width="100%" height="100%" rx="8" fill="#14181f"/>` + "\n")
	b.WriteString(`<g font-family="ui-monospace,SFMono-Regular,Menlo,DejaVu Sans Mono,monospace" font-size="12" fill="#d7dde8" xml:space="preserve">` + "\n")
	for i, l := range lines {
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s" textLength="%.1f" xml:space="preserve">%s</text>`+"\n",
			margin, margin+(i+1)*lineHeight-4, colour(l), float64(len([]rune(l)))*charWidth, html.EscapeString(l))
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

func colour(line string) string {
	switch {
	case strings.HasPrefix(line, "$"), strings.HasPrefix(line, "JOB"):
		return "#8fb7ff"
	case strings.Contains(line, " running "), strings.Contains(line, " profiling "):
		return "#9fe0a5"
	case strings.Contains(line, " preempt"):
		return "#f2c97d"
	case strings.Contains(line, " queued "):
		return "#98a2b3"
	}
	return "#d7dde8"
}
