package energy

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/chart"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/services/energy/report"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

//go:embed report.html
var reportPage string

// writeReportHTML writes a page that loads nothing else and can be printed.
func writeReportHTML(w io.Writer, r report.Report, t *tariff.Tariff) error {
	columns := reportColumns(r, t)
	page, err := render.ParsePage("report", reportPage, template.FuncMap{
		"cells": func(row report.Row) []string { return cells(columns, row) },
		"text":  func(i int) bool { return columns[i].text },
		"day":   func(at time.Time) string { return at.In(t.Zone()).Format("2 January 2006 15:04 MST") },
	})
	if err != nil {
		return err
	}
	return page.Execute(w, map[string]any{
		"Report": r, "Columns": headers(columns), "Figures": drawReport(r), "Accounted": r.Accounted(), "Price": priceInWords(t), "Carbon": carbonInWords(r, t), "PUE": t.PUE,
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
func drawReport(r report.Report) []render.Figure {
	if len(r.Rows) == 0 {
		return nil
	}
	const most, daysShown = 12, 31
	rows := r.Rows[:min(len(r.Rows), most)]
	byRow := chart.Bars{Title: "Energy by " + string(r.By), Y: "kWh"}
	for _, row := range rows {
		byRow.Names = append(byRow.Names, shorten(row.Key))
	}
	for _, component := range report.Components(r) {
		values := chart.Values{Name: component}
		for _, row := range rows {
			values.Values = append(values.Values, row.Components[component].KilowattHours())
		}
		byRow.Series = append(byRow.Series, values)
	}
	return []render.Figure{
		render.Drawing(byRow.Title, fmt.Sprintf("kWh by component; the largest %d of %d rows.", len(rows), len(r.Rows)), byRow.SVG()),
		render.Drawing("Energy by day", "kWh that jobs used, that devices used while idle, and that no job accounts for.", drawDays(r.Days[max(len(r.Days)-daysShown, 0):])),
	}
}

func drawDays(days []report.Day) string {
	active, idle, rest := chart.Values{Name: "active"}, chart.Values{Name: "idle"}, chart.Values{Name: "unattributed"}
	byDay := chart.Bars{Title: "Energy by day", Y: "kWh"}
	for _, d := range days {
		byDay.Names = append(byDay.Names, d.Start.Format("2 Jan"))
		active.Values = append(active.Values, d.Active.KilowattHours())
		idle.Values = append(idle.Values, d.Idle.KilowattHours())
		rest.Values = append(rest.Values, d.Unattributed.KilowattHours())
	}
	byDay.Series = []chart.Values{active, idle, rest}
	return byDay.SVG()
}

func shorten(s string) string {
	const most = 14
	if len(s) <= most {
		return s
	}
	return s[:most-1] + "…"
}
