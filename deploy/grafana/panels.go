package main

// stat is a panel with one number.
func stat(title, unit string, width int, about, query string) panel {
	return panel{title: title, kind: number, unit: unit, width: width, height: 4, about: about, queries: []string{query}}
}

// chart is a time series of some queries.
func chart(title, unit string, width, height int, about string, queries ...string) panel {
	return panel{title: title, kind: series, unit: unit, width: width, height: height, about: about, queries: queries}
}

// areas is a time series whose queries are stacked.
func areas(title, unit string, width, height int, about string, queries ...string) panel {
	p := chart(title, unit, width, height, about, queries...)
	p.stacked = true
	return p
}

// list is a table of the rows of a query.
func list(title, unit string, width, height int, about, query string) panel {
	return panel{title: title, kind: table, unit: unit, width: width, height: height, about: about, queries: []string{query}}
}

// microjoules are fields of raw energies, which Grafana scales to joules.
func microjoules(names ...string) []field {
	var all []field
	for _, name := range names {
		all = append(all, field{name: name, unit: "si:µJ"})
	}
	return all
}

// lowIsBad returns the panel of a part of a whole that should be nearly all of it.
func (p panel) lowIsBad() panel {
	p.base = "red"
	return p.coloured(step{0.9, "yellow"}, step{0.99, "green"}).between(0, 1)
}
