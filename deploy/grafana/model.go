package main

// dashboard is one dashboard; Grafana's other fields are the same for all.
type dashboard struct {
	uid, title, from string
	// stage is the stage of the series that the dashboard shows first.
	stage     string
	variables []variable
	panels    []panel
}

// variable is chosen from the values that its query returns, or typed in without a query.
type variable struct {
	name, label, query, value string
	// all allows any number of values, initially all.
	all bool
}

// panel is one chart, table or number of some queries.
type panel struct {
	title, kind, unit, about string
	width, height            int
	queries                  []string
	stacked                  bool
}

// The kinds of panel.
const (
	series   = "timeseries"
	number   = "stat"
	table    = "table"
	columns  = "barchart"
	fullWide = 24
)

type object = map[string]any

// source is a variable of the dashboard, so that the file names no data source.
func source() object { return object{"type": "influxdb", "uid": "${source}"} }

func (d dashboard) grafana() object {
	variables := []object{
		{
			"name": "source", "label": "Data source", "type": "datasource", "query": "influxdb",
			"current": object{"text": "Switchyard", "value": "switchyard-influxdb"},
		},
		{
			"name": "database", "label": "Database", "type": "textbox", "query": "switchyard",
			"current": object{"text": "switchyard", "value": "switchyard"},
		},
		{
			"name": "stage", "label": "Detail", "type": "custom", "query": "raw,1m,1h",
			"current": object{"text": d.stage, "value": d.stage}, "options": stages(d.stage),
		},
	}
	for _, v := range d.variables {
		variables = append(variables, v.grafana())
	}
	return object{
		"uid": d.uid, "title": d.title, "tags": []string{"switchyard"}, "schemaVersion": 41, "editable": false,
		"timezone": "browser", "refresh": "30s", "time": object{"from": d.from, "to": "now"}, "graphTooltip": 1,
		"templating": object{"list": variables}, "annotations": object{"list": []object{annotation()}},
		"links": []object{{
			"type": "dashboards", "tags": []string{"switchyard"}, "title": "Switchyard", "asDropdown": true, "keepTime": true,
		}},
		"panels": d.layout(),
	}
}

// stages returns the choices of the stage.
func stages(selected string) []object {
	var all []object
	for _, stage := range []string{"raw", "1m", "1h"} {
		all = append(all, object{"text": stage, "value": stage, "selected": stage == selected})
	}
	return all
}

// annotation marks the events of jobs.
func annotation() object {
	return object{
		"name": "Jobs", "enable": true, "iconColor": "blue", "datasource": source(),
		"target": object{"refId": "Jobs", "query": jobEvents()},
		"mappings": object{
			"time": object{"source": "field", "value": "_time"}, "text": object{"source": "field", "value": "text"},
		},
	}
}

func (v variable) grafana() object {
	if v.query == "" {
		return object{"name": v.name, "label": v.label, "type": "textbox", "query": v.value, "current": object{"text": v.value, "value": v.value}}
	}
	o := object{"name": v.name, "label": v.label, "type": "query", "datasource": source(), "query": v.query, "refresh": 2, "sort": 1}
	if v.all {
		o["multi"], o["includeAll"], o["allValue"], o["current"] = true, true, ".*", object{"text": []string{"All"}, "value": []string{"$__all"}}
	}
	return o
}

// layout puts the panels in rows from left to right.
func (d dashboard) layout() []object {
	var all []object
	x, y, tall := 0, 0, 0
	for i, p := range d.panels {
		if x+p.width > fullWide {
			x, y, tall = 0, y+tall, 0
		}
		o := p.grafana()
		o["id"], o["gridPos"] = i+1, object{"x": x, "y": y, "w": p.width, "h": p.height}
		all = append(all, o)
		x, tall = x+p.width, max(tall, p.height)
	}
	return all
}

func (p panel) grafana() object {
	targets := []object{}
	for i, q := range p.queries {
		targets = append(targets, object{"refId": string(rune('A' + i)), "datasource": source(), "query": q})
	}
	custom := object{}
	if p.kind == series {
		custom = object{"fillOpacity": 10, "showPoints": "never", "spanNulls": false}
	}
	if p.stacked {
		custom["stacking"], custom["fillOpacity"] = object{"mode": "normal"}, 60
	}
	options := object{}
	if p.kind == number {
		options = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}}
	}
	return object{
		"title": p.title, "type": p.kind, "description": p.about, "datasource": source(), "targets": targets, "options": options,
		"fieldConfig": object{"defaults": object{"unit": p.unit, "custom": custom}, "overrides": []object{}},
	}
}
