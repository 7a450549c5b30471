package unit

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a span of time that people write as 90m, 2h or 1d12h.
type Duration time.Duration

// ParseDuration reads 30s, 90m, 1h30m or 2d12h, but nothing below or equal to 0; a day has 24 hours.
func ParseDuration(s string) (Duration, error) {
	days, rest, hasDays := strings.Cut(s, "d")
	if !hasDays {
		days, rest = "0", s
	} else if rest == "" {
		rest = "0s"
	}
	const most = 100 * 365 // days; time.Duration ends at 292 years
	n, err := strconv.Atoi(days)
	clock, errClock := time.ParseDuration(rest)
	d := Duration(time.Duration(n)*24*time.Hour + clock)
	if err != nil || errClock != nil || n < 0 || n > most || clock < 0 || clock.Hours() > most*24 || d == 0 {
		return 0, fmt.Errorf("want a time above 0 such as 90m, 2h or 1d12h, found %.80q", s)
	}
	return d, nil
}

// Seconds returns d in seconds.
func (d Duration) Seconds() float64 { return time.Duration(d).Seconds() }

// String prints d without the zeros that time.Duration adds.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText writes d as String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := ParseDuration(string(text))
	if err == nil {
		*d = parsed
	}
	return err
}
