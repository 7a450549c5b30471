package main

import (
	"cmp"
	"slices"
)

// dashboard is one dashboard; Grafana's other fields are the same for all.
type dashboard struct {
	// on is the kind of data source that its queries are for.
	on               source
	uid, title, from string
	// stage is the stage of the series that a dashboard on InfluxDB shows first.
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
	// legend names the lines of a chart on Prometheus, e.g. {{node}}.
	legend string
	// steps colour values from a bound on, base those below (default green). least and most are the ends of a scale.
	steps       []step
	base        string
	least, most *float64
	// fields are fields that are not shown as the panel's own.
	fields []field
}

// step is the colour of values from a bound on.
type step struct {
	from   float64
	colour string
}

// field is a field of a panel with a title, a unit or a link of its own.
type field struct {
	name, title, unit string
	hidden            bool
	// bar shows a part of a whole as a bar. link is an address, with the value as ${__value.raw}.
	bar         bool
	link, about string
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

func (d dashboard) grafana() object {
	variables := d.on.variables(d.stage)
	for _, v := range d.variables {
		variables = append(variables, v.grafana(d.on))
	}
	annotations := []object{}
	if d.on.events != nil {
		annotations = append(annotations, d.on.events())
	}
	return object{
		"uid": d.uid, "title": d.title, "tags": []string{"switchyard"}, "schemaVersion": 41, "editable": false,
		"timezone": "browser", "refresh": "30s", "time": object{"from": d.from, "to": "now"}, "graphTooltip": 1,
		"templating": object{"list": variables}, "annotations": object{"list": annotations},
		"links": []object{{
			"type": "dashboards", "tags": []string{"switchyard"}, "title": "Switchyard", "asDropdown": true, "keepTime": true,
			"includeVars": false, "targetBlank": false, "icon": "external link", "tooltip": "",
		}},
		"panels": d.layout(),
	}
}

func (v variable) grafana(on source) object {
	if v.query == "" {
		return object{"name": v.name, "label": v.label, "type": "textbox", "query": v.value, "current": object{"text": v.value, "value": v.value}}
	}
	o := object{"name": v.name, "label": v.label, "type": "query", "datasource": on.reference(), "query": v.query, "refresh": 2, "sort": 1}
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
		o := p.grafana(d.on)
		o["id"], o["gridPos"] = i+1, object{"x": x, "y": y, "w": p.width, "h": p.height}
		all = append(all, o)
		x, tall = x+p.width, max(tall, p.height)
	}
	return all
}

func (p panel) grafana(on source) object {
	targets := []object{}
	for i, q := range p.queries {
		targets = append(targets, on.target(string(rune('A'+i)), q, p))
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
	o := object{
		"title": p.title, "type": p.kind, "description": p.about, "datasource": on.reference(), "targets": targets, "options": options,
		"fieldConfig": object{"defaults": p.defaults(custom), "overrides": p.overrides()},
	}
	if p.kind == table && len(p.queries) > 1 && on.rows {
		o["transformations"] = []object{{"id": "merge", "options": object{}}}
	}
	return o
}

// defaults are how the panel shows fields.
func (p panel) defaults(custom object) object {
	o := object{"unit": p.unit, "custom": custom}
	if p.least != nil {
		o["min"] = *p.least
	}
	if p.most != nil {
		o["max"] = *p.most
	}
	if len(p.steps) > 0 {
		steps := []object{{"color": cmp.Or(p.base, "green"), "value": nil}}
		for _, s := range p.steps {
			steps = append(steps, object{"color": s.colour, "value": s.from})
		}
		o["thresholds"] = object{"mode": "absolute", "steps": steps}
		if p.kind == series {
			custom["thresholdsStyle"] = object{"mode": "line"}
		}
	}
	return o
}

// overrides are how it shows fields otherwise.
func (p panel) overrides() []object {
	all := []object{}
	for _, f := range p.fields {
		properties := []object{}
		set := func(id string, value any) { properties = append(properties, object{"id": id, "value": value}) }
		if f.title != "" {
			set("displayName", f.title)
		}
		if f.unit != "" {
			set("unit", f.unit)
		}
		if f.bar {
			set("custom.cellOptions", object{"type": "gauge", "mode": "basic"})
			set("min", 0)
			set("max", 1)
		}
		if f.link != "" {
			set("links", []object{{"title": f.about, "url": f.link}})
		}
		if f.hidden {
			set("custom.hidden", true)
		}
		all = append(all, object{"matcher": object{"id": "byName", "options": f.name}, "properties": properties})
	}
	return all
}

// with returns the panel with fields that are not shown as its own.
func (p panel) with(fields ...field) panel {
	p.fields = slices.Concat(p.fields, fields)
	return p
}

// coloured returns the panel with colours from some bounds on.
func (p panel) coloured(steps ...step) panel {
	p.steps = steps
	return p
}

// between returns the panel with the ends of its scale.
func (p panel) between(least, most float64) panel {
	p.least, p.most = &least, &most
	return p
}
