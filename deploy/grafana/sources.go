package main

// source is a kind of data source: how dashboards ask it. The data source itself is a variable of each dashboard, so
// that no file names one.
type source struct {
	kind, uid string
	// variables are those that all dashboards on it have.
	variables func(stage string) []object
	// target is a query of a panel.
	target func(refID, query string, p panel) object
	// events is the query for the marks in charts; nil if it has no events.
	events func() object
	// rows is set if each query of a table returns rows of its own, to be merged.
	rows bool
}

func (s source) reference() object { return object{"type": s.kind, "uid": "${source}"} }

// chooser is the variable that chooses the data source.
func (s source) chooser() object {
	return object{
		"name": "source", "label": "Data source", "type": "datasource", "query": s.kind,
		"current": object{"text": "Switchyard", "value": s.uid},
	}
}

// influxDB is asked in Flux. All the variables and marks are for the database's series.
func influxDB() source {
	s := source{kind: "influxdb", uid: "switchyard-influxdb"}
	s.variables = func(stage string) []object {
		return []object{
			s.chooser(),
			{
				"name": "database", "label": "Database", "type": "textbox", "query": "switchyard",
				"current": object{"text": "switchyard", "value": "switchyard"},
			},
			{
				"name": "stage", "label": "Detail", "type": "custom", "query": "raw,1m,1h",
				"current": object{"text": stage, "value": stage}, "options": stages(stage),
			},
		}
	}
	s.target = func(refID, query string, _ panel) object {
		return object{"refId": refID, "datasource": s.reference(), "query": query}
	}
	s.events = func() object {
		return object{
			"name": "Jobs", "enable": true, "iconColor": "blue", "datasource": s.reference(),
			"target": object{"refId": "Jobs", "query": jobEvents()},
			"mappings": object{
				"time": object{"source": "field", "value": "_time"}, "text": object{"source": "field", "value": "text"},
			},
		}
	}
	return s
}

// stages returns the choices of the stage.
func stages(selected string) []object {
	var all []object
	for _, stage := range []string{"raw", "1m", "1h"} {
		all = append(all, object{"text": stage, "value": stage, "selected": stage == selected})
	}
	return all
}

// prometheus is asked in PromQL. Tables and numbers show one moment, charts a time.
func prometheus() source {
	s := source{kind: "prometheus", uid: "switchyard-prometheus", rows: true}
	s.variables = func(string) []object { return []object{s.chooser()} }
	s.target = func(refID, query string, p panel) object {
		o := object{"refId": refID, "datasource": s.reference(), "expr": query, "legendFormat": p.legend}
		if p.kind != series {
			o["instant"], o["range"] = true, false
		}
		if p.kind == table {
			o["format"] = "table"
		}
		return o
	}
	return s
}
