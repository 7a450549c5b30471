package bus

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestARefusalThatRepeatsItselfIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	b := &Bus{log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 3 {
		b.refused(errors.New("error signing nonce: no such file"))
	}
	b.refused(errors.New("permissions violation"))
	if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), "permissions violation") {
		t.Errorf("%d lines, want one of each error:\n%s", lines, log.String())
	}
}
