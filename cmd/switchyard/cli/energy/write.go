package energy

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/report"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

func writeReport(a *console.Console, r report.Report, t *tariff.Tariff) error {
	switch a.Output {
	case "json":
		return a.PrintJSON(r)
	case "csv":
		return a.CSV(reportRows(r))
	case "html":
		return writeReportHTML(a.Stdout, r, t)
	}
	columns := reportColumns(r, t)
	header := make([]string, len(columns))
	for i, c := range columns {
		header[i] = strings.ToUpper(c.title)
	}
	err := a.Table(strings.Join(header, "\t"), func(w io.Writer) {
		for _, row := range append(r.Rows, r.Total) {
			fmt.Fprintln(w, strings.Join(cells(columns, row), "\t"))
		}
	})
	if err == nil {
		_, err = fmt.Fprintln(a.Stdout, r.Accounted())
	}
	return err
}

// column is one of a report for people.
type column struct {
	title string
	cell  func(report.Row) string
	// text is set for a column of words.
	text bool
}

func cells(columns []column, row report.Row) []string {
	all := make([]string, len(columns))
	for i, c := range columns {
		all[i] = c.cell(row)
	}
	return all
}

// reportColumns returns the columns of interest for a kind of report.
func reportColumns(r report.Report, t *tariff.Tariff) []column {
	columns := []column{{title: string(r.By), text: true, cell: func(r report.Row) string { return render.Cell(r.Key, 64) }}}
	if r.By == report.ByJob {
		columns = append(columns,
			column{title: "name", text: true, cell: func(r report.Row) string { return render.Cell(r.Name, 24) }},
			column{title: "user", text: true, cell: func(r report.Row) string { return render.Cell(r.User, 12) }},
			column{title: "state", text: true, cell: func(r report.Row) string { return cmp.Or(string(r.State), "-") }})
	} else {
		columns = append(columns, column{title: "jobs", cell: func(r report.Row) string { return strconv.Itoa(r.Jobs) }})
	}
	columns = append(columns, column{title: "energy", cell: func(r report.Row) string { return r.Energy.String() }})
	if r.By == report.ByNode || r.By == report.ByMonth {
		columns = append(columns,
			column{title: "active", cell: func(r report.Row) string { return r.Active.String() }},
			column{title: "idle", cell: func(r report.Row) string { return r.Idle.String() }},
			column{title: "unattr.", cell: func(r report.Row) string { return r.Unattributed.String() }})
	}
	columns = append(columns,
		column{title: "waste", cell: func(r report.Row) string { return r.Waste.String() }},
		column{title: "mean W", cell: func(r report.Row) string { return ofJobs(r, "%.0f", r.MeanWatts) }},
		column{title: "peak W", cell: func(r report.Row) string { return ofJobs(r, "%.0f", r.PeakWatts) }})
	if r.By == report.ByJob {
		columns = append(columns,
			column{title: "per epoch", cell: func(r report.Row) string { return joules(r.JoulesPerEpoch) }},
			column{title: "per sample", cell: func(r report.Row) string { return joules(r.JoulesPerSample) }})
		if slices.ContainsFunc(r.Rows, func(r report.Row) bool { return r.JoulesToTarget != nil }) {
			columns = append(columns, column{title: "to target", cell: func(r report.Row) string { return joules(r.JoulesToTarget) }})
		}
	}
	return append(columns,
		column{title: strings.TrimSpace("cost " + t.Currency), cell: func(r report.Row) string { return part(render.Known(r.Cost, "%.4g"), r.PricedRatio) }},
		column{title: "CO2e kg", cell: func(r report.Row) string { return part(kilograms(r.CO2eGrams), r.IntensityRatio) }},
		column{title: "saved", cell: savedCell},
		column{title: "measured", cell: coverage},
		column{title: "method", text: true, cell: func(r report.Row) string { return cmp.Or(strings.Join(r.Methods, ","), "-") }})
}

// joules prints an energy, or a dash if it is not known.
func joules(v *float64) string {
	if v == nil {
		return "-"
	}
	return unit.Joules(*v)
}

// coverage is the measured part of a row's time. What is only modelled covers nothing.
func coverage(r report.Row) string {
	if train.Modelled(r.Methods) {
		return "-"
	}
	return ofJobs(r, "%.1f %%", 100*r.CoverageRatio)
}

// ofJobs prints a figure that only rows with jobs have.
func ofJobs(r report.Row, format string, v float64) string {
	if r.Jobs == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func kilograms(grams *float64) string {
	if grams == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g", *grams/1000)
}

// part marks a figure that covers only a part of the energy.
func part(figure string, ratio float64) string {
	const whole = 0.9995
	if figure == "-" || ratio >= whole {
		return figure
	}
	return fmt.Sprintf("%s (of %.0f %%)", figure, 100*ratio)
}

// savedCell is the energy and the time saved compared to the default configuration, below 0 if the job took more.
func savedCell(r report.Row) string {
	if r.Saving == nil {
		return "-"
	}
	percent := func(ratio float64) float64 { return math.Round(100*ratio) + 0 } // nothing saved is +0
	return fmt.Sprintf("%+.0f %% energy, %+.0f %% time", percent(r.Saving.EnergyRatio), percent(-r.Saving.TimePenaltyRatio))
}

// reportRows are all figures, for programs. An empty cell is an unknown figure.
func reportRows(r report.Report) [][]string {
	components := report.Components(r)
	header := []string{
		string(r.By), "name", "user", "state", "jobs", "kwh", "facility_kwh", "active_kwh", "idle_kwh", "unattributed_kwh", "waste_kwh", "mean_w", "peak_w", "joules_per_epoch",
		"joules_per_sample", "joules_to_target", "cost", "co2e_g", "co2e_estimated_ratio", "priced_ratio", "intensity_known_ratio", "coverage_ratio", "methods", "energy_saved_ratio", "time_penalty_ratio",
	}
	for _, component := range components {
		header = append(header, component+"_kwh")
	}
	lines, number := [][]string{header}, render.Exactly
	maybe := func(v *float64) string {
		if v == nil {
			return ""
		}
		return number(*v)
	}
	for _, row := range append(r.Rows, r.Total) {
		saved, penalty := "", ""
		if row.Saving != nil {
			saved, penalty = number(row.Saving.EnergyRatio), number(row.Saving.TimePenaltyRatio)
		}
		line := []string{
			row.Key, row.Name, row.User, string(row.State), strconv.Itoa(row.Jobs), number(row.KWh), number(row.FacilityKWh), number(row.Active.KilowattHours()),
			number(row.Idle.KilowattHours()), number(row.Unattributed.KilowattHours()), number(row.Waste.KilowattHours()), number(row.MeanWatts), number(row.PeakWatts),
			maybe(row.JoulesPerEpoch), maybe(row.JoulesPerSample), maybe(row.JoulesToTarget), maybe(row.Cost), maybe(row.CO2eGrams), number(row.EstimatedRatio), number(row.PricedRatio),
			number(row.IntensityRatio), number(row.CoverageRatio), strings.Join(row.Methods, " "), saved, penalty,
		}
		for _, component := range components {
			line = append(line, number(row.Components[component].KilowattHours()))
		}
		lines = append(lines, line)
	}
	return lines
}
