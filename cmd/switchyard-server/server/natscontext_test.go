package server

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/installation"
)

// With the contexts that `up` writes, publishing a job is one command of the nats CLI: it takes from them the address,
// the key and the prefix of its inboxes. They and the keys are for their owner alone.
func TestTheContextsOfNATSOpenTheBus(t *testing.T) {
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	server, keys := bustest.StartGuarded(t)
	bustest.ConnectWith(t, bus.Config{URL: server.URL(), Keys: string(keys), Name: "up"}) // makes the streams
	if err := writeNATSContexts(installation.Context{NATS: server.URL(), Keys: string(keys)}); err != nil {
		t.Fatal(err)
	}
	for name, sees := range map[string]bool{"switchyard": false, "switchyard-operator": true} {
		path := filepath.Join(config, "nats", "context", name+".json")
		text, err := os.ReadFile(path)
		var at struct {
			URL   string `json:"url"`
			NKey  string `json:"nkey"`
			Inbox string `json:"inbox_prefix"`
		}
		if err != nil || json.Unmarshal(text, &at) != nil {
			t.Fatalf("%s: %s, %v", path, text, err)
		}
		for _, file := range []string{path, at.NKey} {
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: mode %s, %v", file, info.Mode(), err)
			}
		}
		key, err := nats.NkeyOptionFromSeed(at.NKey)
		if err != nil {
			t.Fatal(err)
		}
		options := []nats.Option{key, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}
		if at.Inbox != "" {
			options = append(options, nats.CustomInboxPrefix(at.Inbox))
		}
		nc, err := nats.Connect(at.URL, options...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer nc.Close()
		if answer, err := nc.Request("yard.job."+name+".submitted.v1", []byte(`{"name":"x","command":["true"]}`), time.Minute); err != nil || !strings.Contains(string(answer.Data), `"stream":"JOBS"`) {
			t.Errorf("%s publishes a job: %v, %v", name, answer, err)
		}
		_, err = nc.Request("$JS.API.STREAM.INFO.JOBS", nil, 2*time.Second)
		if (err == nil) != sees {
			t.Errorf("%s reads streams: %v, want %v", name, err, sees)
		}
	}
}
