package contract

import (
	"strings"
	"testing"
)

// An id has at most 64 characters, a link 200, and what is written in hexadecimal any number.
func TestThePartsOfAKeyAreBounded(t *testing.T) {
	long := func(n int) string { return strings.Repeat("a", n) }
	for _, c := range []struct {
		reader interface{ tooLong(key string) bool }
		key    string
		want   bool
	}{
		{Jobs.Reader(), long(64), false},
		{Jobs.Reader(), long(65), true},
		{Accounts.Reader(), "job." + long(64), false},
		{Accounts.Reader(), "job." + long(65), true},
		{Links.Reader(), long(200), false},
		{Links.Reader(), long(201), true},
		{Groups.Reader(), "t" + long(300) + "." + long(64), false},
		{Groups.Reader(), "t61." + long(65), true},
	} {
		if got := c.reader.tooLong(c.key); got != c.want {
			t.Errorf("%T: a key of %d characters is too long: %t", c.reader, len(c.key), got)
		}
	}
}
