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
