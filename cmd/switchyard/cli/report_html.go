package cli

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/switchyard-dl/switchyard/services/energy/report"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

//go:embed report.html
var reportPage string

// reportFigure is a picture with what it shows in words.
type reportFigure struct {
	Title   string
	Caption string
	SVG     template.HTML
}

// writeReportHTML writes a page that needs nothing else, and reads well on paper.
func writeReportHTML(w io.Writer, r report.Report, t *tariff.Tariff) error {
	figures, err := drawReport(r)
	if err != nil {
		return err
	}
	columns := reportColumns(r, t)
	page, err := parsePage("report", reportPage, template.FuncMap{
		"cells": func(row report.Row) []string { return cells(columns, row) },
		"text":  func(i int) bool { return columns[i].text },
		"day":   func(at time.Time) string { return at.In(t.Zone()).Format("2 January 2006 15:04 MST") },
	})
	if err != nil {
		return err
	}
	return page.Execute(w, map[string]any{
		"Report": r, "Columns": headers(columns), "Figures": figures, "Accounted": r.Accounted(), "Price": priceInWords(t), "Carbon": carbonInWords(r, t), "PUE": t.PUE,
	})
}

// header is the top of a column.
type header struct {
	Title  string
	IsText bool
}

func headers(columns []column) []header {
	all := make([]header, len(columns))
	for i, c := range columns {
		all[i] = header{c.title, c.text}
	}
	return all
}

func priceInWords(t *tariff.Tariff) string {
	var parts []string
	for _, p := range t.Periods {
		days := "every day"
		if len(p.Days) > 0 {
			days = strings.Join(p.Days, " ")
		}
		parts = append(parts, fmt.Sprintf("%s (%s %s to %s) %g %s/kWh", p.Name, days, p.From, p.To, p.PerKWh, t.Currency))
	}
	if t.PerKWh != nil {
		parts = append(parts, fmt.Sprintf("otherwise %g %s/kWh", *t.PerKWh, t.Currency))
	}
	if len(parts) == 0 {
		return "no tariff was given"
	}
	return strings.Join(parts, "; ") + "; times of " + t.Timezone
}

func carbonInWords(r report.Report, t *tariff.Tariff) string {
	source := ""
	switch {
	case t.Carbon.GramsPerKWh != nil:
		source = fmt.Sprintf("%g g/kWh at all times", *t.Carbon.GramsPerKWh)
	case t.Carbon.File != "":
		source = "by the hour, from " + t.Carbon.File
	case t.Carbon.URL != "":
		source = "by the hour, from " + t.Carbon.URL
	default:
		return "no source was given"
	}
	if t.Carbon.Source != "" {
		source += " (" + t.Carbon.Source + ")"
	}
	return fmt.Sprintf("%s; known for %.0f %% of the energy, estimated by the source for %.0f %% of that", source, 100*r.Total.IntensityRatio, 100*r.Total.EstimatedRatio)
}

// drawReport draws energy by row and component, and by day and use.
func drawReport(r report.Report) ([]reportFigure, error) {
	if len(r.Rows) == 0 {
		return nil, nil
	}
	const most = 12
	rows := r.Rows[:min(len(r.Rows), most)]
	byRow := bars{unit: "kWh", names: make([]string, len(rows)), series: map[string]plotter.Values{}, order: report.Components(r)}
	for i, row := range rows {
		byRow.names[i] = shorten(row.Key)
		for _, component := range byRow.order {
			byRow.series[component] = append(byRow.series[component], row.Components[component].KilowattHours())
		}
	}
	byDay := bars{unit: "kWh", series: map[string]plotter.Values{}, order: []string{"active", "idle", "unattributed"}}
	days := r.Days[max(len(r.Days)-2*most-7, 0):]
	for i, d := range days {
		name := ""
		if i%(1+len(days)/most) == 0 {
			name = d.Start.Format("2 Jan")
		}
		byDay.names = append(byDay.names, name)
		for use, e := range map[string]float64{"active": d.Active.KilowattHours(), "idle": d.Idle.KilowattHours(), "unattributed": d.Unattributed.KilowattHours()} {
			byDay.series[use] = append(byDay.series[use], e)
		}
	}
	first, err := byRow.draw()
	if err != nil {
		return nil, err
	}
	second, err := byDay.draw()
	if err != nil {
		return nil, err
	}
	return []reportFigure{
		{Title: "Energy by " + string(r.By), Caption: fmt.Sprintf("kWh by component; the largest %d of %d rows.", len(rows), len(r.Rows)), SVG: first},
		{Title: "Energy by day", Caption: "kWh that jobs used, that was spent idle, and that belongs to no job.", SVG: second},
	}, nil
}

func shorten(s string) string {
	const most = 14
	if len(s) <= most {
		return s
	}
	return s[:most-1] + "…"
}

// bars are stacked columns: unit is what they are tall in, title what each stands for.
type bars struct {
	unit   string
	title  string
	names  []string
	order  []string
	series map[string]plotter.Values
}

// draw gives the picture.
func (b bars) draw() (template.HTML, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text, p.Y.Min = b.title, b.unit, 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	width := vg.Points(min(320/float64(len(b.names)), 40))
	var below *plotter.BarChart
	for i, name := range b.order {
		chart, err := plotter.NewBarChart(b.series[name], width)
		if err != nil {
			return "", fmt.Errorf("draw %s: %w", name, err)
		}
		chart.Color, chart.LineStyle.Color, chart.LineStyle.Width = plotutil.SoftColors[i%len(plotutil.SoftColors)], color.Black, vg.Points(0.3)
		if below != nil {
			chart.StackOn(below)
		}
		below = chart
		p.Add(chart)
		p.Legend.Add(name, chart)
	}
	p.Y.Max *= legendRoom(len(b.order))
	p.NominalX(b.names...)
	if len(b.names) > 6 {
		p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = 0.6, draw.XRight, draw.YTop
	}
	return drawSVG(p)
}

// legendRoom is how much higher than what it shows a picture is, for so many lines of a legend above that.
func legendRoom(lines int) float64 { return 1 + 0.08*float64(lines) }

// drawSVG draws a plot as SVG without the XML declaration, to stand in a page.
func drawSVG(p *plot.Plot) (template.HTML, error) {
	canvas := vgsvg.New(17*vg.Centimeter, 7*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return "", fmt.Errorf("draw: %w", err)
	}
	_, picture, _ := strings.Cut(svg.String(), "<svg")
	return template.HTML("<svg" + picture), nil //nolint:gosec // gonum escapes the names
}
