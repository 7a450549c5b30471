package system

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// The value of a secret variable reaches the job and nothing else: no fact, no record, no answer of a command, no
// bundle. A job without its secret does not start, and is not tried again.
func TestASecretReachesItsJobAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	c.awaitNode()
	const canary = "xyzzy-canary"
	own := filepath.Join(c.dir, "own")
	token, bundle := filepath.Join(own, "token"), filepath.Join(c.dir, "bundle.tar.gz")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(token, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	submit := func(id, path string) {
		t.Helper()
		// The job tells its secret backwards.
		if code, out := c.command("submit", "--id", id, "--work-dir", c.dir, "--secret-env", "TOKEN=file:"+path, "--", "sh", "-c", `test -n "$TOKEN" && echo "$TOKEN" | rev && sleep 1`); code != 0 {
			t.Fatalf("submit: %d %s", code, out)
		}
	}
	submit("told", token)
	submit("untold", token+"s")
	jobs := c.await("both have ended", func(jobs map[train.JobID]train.Job) bool {
		return jobs["told"].State.Terminal() && jobs["untold"].State.Terminal()
	})
	told, untold := jobs["told"], jobs["untold"]
	if _, out := c.command("logs", "told"); told.State != train.StateSucceeded || !strings.Contains(out, "yranac-yzzyx") {
		t.Errorf("%s: %s %s", told.State, told.Message, out)
	}
	if untold.State != train.StateFailed || untold.Attempt != 1 || !strings.Contains(untold.Message, "secret_env.TOKEN") {
		t.Errorf("without its secret: %s in attempt %d: %s", untold.State, untold.Attempt, untold.Message)
	}
	said := map[string]string{}
	for _, args := range [][]string{{"describe", "told", "-o", "json"}, {"describe", "untold"}, {"events", "--all", "--once", "-o", "json"}, {"bundle", "--out", bundle}, {"ps", "-o", "json"}} {
		code, out := c.command(args...)
		if code != 0 {
			t.Errorf("%s: %d %s", args, code, out)
		}
		said[strings.Join(args, " ")] = out
	}
	if out := said["describe untold"]; !strings.Contains(out, "SecretMissing") && !strings.Contains(out, "secret_env.TOKEN") {
		t.Errorf("describe does not say why: %s", out)
	}
	code, out := c.command("replay", "--bundle", bundle, "-o", "json")
	said["replay"] = out
	if code != 0 {
		t.Errorf("replay: %d %s", code, out)
	}
	for _, s := range event.Streams() {
		if err := c.bus.Stored(c.ctx, s.Name, nil, time.Time{}, func(m bus.Message) { said[s.Name] += string(m.Data) }); err != nil {
			t.Error(err)
		}
	}
	for _, k := range contract.Buckets() {
		said[k.Name] = allRecords(c.ctx, t, c.bus, k.Name)
	}
	// What the supervisors had of it goes with the folders of their attempts.
	c.eventually("no file of the data folder has it", func() error {
		return filepath.WalkDir(c.data, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return nil //nolint:nilerr // removed meanwhile
			}
			if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(canary)) {
				return fmt.Errorf("%s has the secret", path)
			}
			return nil
		})
	})
	for where, text := range said {
		if strings.Contains(text, canary) {
			t.Errorf("%s has the secret", where)
		}
	}
}

// allRecords returns all records of a bucket.
func allRecords(ctx context.Context, t *testing.T, b *bus.Bus, bucket string) (text string) {
	t.Helper()
	kv, err := bus.OpenKV(ctx, b, contract.Bucket[json.RawMessage](bucket))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := kv.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text += string(e.Value)
	}
	return text
}
