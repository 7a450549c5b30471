// Package explain says in sentences what the records tell about a job: why it waits, runs or moved, what is predicted,
// learned and spent. `switchyard describe` prints this text, and the page shows it.
package explain

import (
	"fmt"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// Job is what is explained of a job. What is missing is nil.
type Job struct {
	Job        train.Job            `json:"job"`
	RunSeconds float64              `json:"run_seconds"`
	Attempt    *view.Attempt        `json:"attempt,omitempty"`
	Report     *train.AttemptReport `json:"report,omitempty"`
	Batches    []view.EpochBatch    `json:"batches,omitempty"`
	Plan       *view.Plan           `json:"plan,omitempty"`
	Company    *Company             `json:"company,omitempty"`
	// ContinuedBy are the jobs that began from its checkpoints.
	ContinuedBy []train.JobID `json:"continued_by,omitempty"`
	// Unsearched says that nobody has looked for them.
	Unsearched bool `json:"continued_by_unknown,omitempty"`
	// Progress is the part of the training that is done, by its steps if they are known.
	Progress *float64 `json:"progress,omitempty"`
	// Silent is set while running code reports no more steps.
	Silent  *train.Reason         `json:"silent,omitempty"`
	Model   *train.Model          `json:"model,omitempty"`
	Account *train.Account        `json:"account,omitempty"`
	Course  *train.EnergyProgress `json:"course,omitempty"`
	Tuning  *view.Tuning          `json:"tuning,omitempty"`
	// Mounted says whether the job sees its folders as /custom, /snapshots and /data. It is nil before the job has
	// started.
	Mounted *bool `json:"mounted,omitempty"`
	// Folders are paths on the job's machine. It is nil before the start, for pods, and if the executor does not answer.
	Folders *rpc.Folders `json:"folders,omitempty"`
	// CheckpointPath is the machine's path of the newest checkpoint.
	CheckpointPath string `json:"checkpoint_path,omitempty"`
}

// Of takes over what is known about a job.
func Of(d view.Detail) Job {
	return Job{
		Job: d.Job, RunSeconds: d.RunSeconds, Attempt: d.Attempt, Report: d.Report, Batches: d.Batches, Plan: d.Plan, Company: beside(d),
		ContinuedBy: d.ContinuedBy, Unsearched: d.Unsearched, Progress: d.Progress, Silent: d.Silent, Model: d.Model, Account: d.Account, Course: d.Course, Tuning: d.Tuning, Mounted: d.Mounted,
	}
}

// Company lists the co-runners of a job, and its rate on the device where it is slowest: the part of its speed alone
// that it keeps.
type Company struct {
	Beside []train.JobID `json:"beside"`
	// PredictedRate follows from interference samples of other jobs; 0 if nobody has computed it. MeasuredRate is the
	// mean of Measurements samples of these jobs.
	PredictedRate float64 `json:"predicted_rate"`
	MeasuredRate  float64 `json:"measured_rate,omitempty"`
	Measurements  int     `json:"measurements,omitempty"`
}

// beside names the co-runners, or returns nil for a job that has its devices alone.
func beside(d view.Detail) *Company {
	if len(d.Beside) == 0 || d.Plan == nil || d.Plan.Allocation == nil {
		return nil
	}
	c := &Company{}
	for _, other := range d.Beside {
		c.Beside = append(c.Beside, other.Job.ID)
	}
	return c
}

func (p *page) company(d Job) {
	c := d.Company
	if c == nil {
		return
	}
	line := "beside " + strings.Join(train.Words(c.Beside), ", ")
	if c.PredictedRate > 0 {
		line += fmt.Sprintf(": predicted at %.0f %% of its speed alone", 100*c.PredictedRate)
	}
	if c.Measurements > 0 {
		line += fmt.Sprintf(", measured %.0f %% (%s)", 100*c.MeasuredRate, render.Plural(c.Measurements, "measurement"))
	}
	p.field("shares", "%s", render.EscapeText(line))
}

// Text is an explanation.
type Text struct {
	// Title names the job.
	Title string `json:"title"`
	// Sections are the parts. The first one, which has no title, says where the job stands and why.
	Sections []Section `json:"sections"`
}

// Section is a titled part of a text.
type Section struct {
	// Title says what it is about.
	Title string `json:"title"`
	// Parts are in the order of reading.
	Parts []Part `json:"parts"`
}

// Part is a line with a label, a table, or lines as they are.
type Part struct {
	// Label is empty on a line that goes on with the one before.
	Label string `json:"label,omitempty"`
	// Words are what stands behind the label.
	Words string `json:"words,omitempty"`
	// Header names the columns of a table.
	Header []string `json:"header,omitempty"`
	// Rows are the cells of a table.
	Rows [][]string `json:"rows,omitempty"`
	// Text are lines as they are.
	Text string `json:"text,omitempty"`
}

// String prints the text for a terminal.
func (t Text) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, t.Title)
	for i, s := range t.Sections {
		if i > 0 {
			fmt.Fprintf(&b, "\n%s\n", s.Title)
		}
		for _, p := range s.Parts {
			p.print(&b)
		}
	}
	return b.String()
}

func (p Part) print(b *strings.Builder) {
	switch {
	case p.Header != nil:
		w := &render.Columns{To: b}
		fmt.Fprintln(w, "  "+strings.Join(p.Header, "\t"))
		for _, row := range p.Rows {
			fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
		}
		_ = w.Flush() // a Builder takes everything
	case p.Text != "":
		b.WriteString(p.Text)
	default:
		fmt.Fprintf(b, "%-11s %s\n", p.Label, p.Words)
	}
}

// page gathers the sections. Callers escape text that comes from users.
type page struct{ sections []Section }

func (p *page) add(part Part) {
	last := &p.sections[len(p.sections)-1]
	last.Parts = append(last.Parts, part)
}

// field adds a labelled line.
func (p *page) field(label, format string, args ...any) {
	p.add(Part{Label: label, Words: fmt.Sprintf(format, args...)})
}

// text adds lines as they are.
func (p *page) text(lines string) { p.add(Part{Text: lines}) }

func (p *page) section(title string) { p.sections = append(p.sections, Section{Title: title}) }

// rows adds a table. Tabs separate its cells.
func (p *page) rows(header string, lines []string) {
	table := Part{Header: strings.Split(header, "\t"), Rows: make([][]string, len(lines))}
	for i, line := range lines {
		table.Rows[i] = strings.Split(line, "\t")
	}
	p.add(table)
}
