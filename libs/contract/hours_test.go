package contract_test

import (
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

func TestPatternsOfHours(t *testing.T) {
	at := func(s string) time.Time {
		parsed, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for _, c := range []struct {
		from, to string
		want     []string
	}{
		{"2026-01-30T22:00:00Z", "2026-01-31T03:00:00Z", []string{"*.2026-01.30.*", "*.2026-01.31.*"}},
		{"2026-01-31T00:00:00+02:00", "2026-03-02T00:00:00Z", []string{"*.2026-01.30.*", "*.2026-01.31.*", "*.2026-02.*.*", "*.2026-03.01.*"}},
		{"2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z", []string{"*.2026-02.*.*"}},
		{"1970-01-01T00:00:00Z", "2026-03-01T00:00:00Z", []string{">"}},
	} {
		if got := contract.HourPatterns(at(c.from), at(c.to)); !slices.Equal(got, c.want) {
			t.Errorf("%s to %s: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}
