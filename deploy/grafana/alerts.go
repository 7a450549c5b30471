package main

import "strings"

// alert fires for each row of the query's answer whose newest value is above zero.
type alert struct {
	uid, title, summary, query string
	// seconds is how far back the query looks, wait how long the value stays above zero before the alert fires.
	seconds int
	wait    string
}

// aDay is a day in seconds. A silent agent has no new points and would resolve its own alert once the query no longer
// reaches back to its last one.
const aDay = 24 * 60 * 60

// alerts returns the alerts of the network. They use the provisioned data source and database, since a rule has no
// variables.
func alerts() []alert {
	worst := func(field string) string {
		return from("net_link", field) + by("link") + ` |> last()
 |> keep(columns: ["_time", "link", "_value"])
`
	}
	silence := fromStage("raw", "net_probes", "sent") + " |> last()\n" + by("node") + ` |> last()
 |> map(fn: (r) => ({node: r.node, _time: now(), ` +
		`_value: float(v: int(v: now()) - int(v: r._time)) / 1000000000.0 - 60.0}))
 |> group(columns: ["node"])
`
	return []alert{
		{
			uid: "switchyard-link-loss", title: "A link loses packets",
			summary: "The link {{ .Labels.link }} loses packets: `switchyard net status` shows how many.",
			query:   worst("loss_ratio"), seconds: 60, wait: "0s",
		},
		{
			uid: "switchyard-link-slow", title: "A link is slow",
			summary: "Packets take longer than usual over the link {{ .Labels.link }}: `switchyard net status` shows how much.",
			query:   worst("delay_s"), seconds: 60, wait: "1m",
		},
		{
			uid: "switchyard-probes-silent", title: "An agent has stopped probing",
			summary: "The agent of {{ .Labels.node }} has reported no probes for a minute.",
			query:   silence, seconds: aDay, wait: "0s",
		},
	}
}

// provisioned returns the file that Grafana reads at its start.
func provisioned(all []alert) object {
	rules := []object{}
	for _, a := range all {
		rules = append(rules, a.grafana())
	}
	return object{"apiVersion": 1, "groups": []object{{"orgId": 1, "name": "network", "folder": "Switchyard", "interval": "30s", "rules": rules}}}
}

func (a alert) grafana() object {
	query := strings.NewReplacer("${database}", "switchyard", "${stage}", "raw").Replace(a.query)
	expression := func(refID string, model object) object {
		model["refId"], model["datasource"] = refID, object{"type": "__expr__", "uid": "__expr__"}
		return object{"refId": refID, "datasourceUid": "__expr__", "model": model}
	}
	return object{
		"uid": a.uid, "title": a.title, "condition": "above", "for": a.wait, "noDataState": "OK", "execErrState": "Error",
		"annotations": object{"summary": a.summary}, "labels": object{"service": "switchyard"},
		"data": []object{
			{
				"refId": "rows", "datasourceUid": "switchyard-influxdb", "relativeTimeRange": object{"from": a.seconds, "to": 0},
				"model": object{"refId": "rows", "query": query},
			},
			expression("newest", object{"type": "reduce", "reducer": "last", "expression": "rows"}),
			expression("above", object{
				"type": "threshold", "expression": "newest",
				"conditions": []object{{"evaluator": object{"type": "gt", "params": []int{0}}}},
			}),
		},
	}
}
