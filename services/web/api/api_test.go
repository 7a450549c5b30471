package api_test

import (
	"net/url"
	"slices"
	"testing"

	"github.com/switchyard-dl/switchyard/services/web/api"
)

func TestAPageIsBounded(t *testing.T) {
	routes := api.Routes()
	jobs := routes[slices.IndexFunc(routes, func(r api.Route) bool { return r.Name == api.RouteJobs })]
	for given, want := range map[string]int{"": api.DefaultLimit, "limit=0": api.DefaultLimit, "limit=7": 7, "limit=10000": 10_000, "limit=10001": api.MaxLimit} {
		values, err := url.ParseQuery(given)
		if err != nil {
			t.Fatal(err)
		}
		q, err := jobs.Decode(values)
		if err != nil || q.Limit != want {
			t.Errorf("%q: limit %d, %v, want %d", given, q.Limit, err, want)
		}
	}
}
