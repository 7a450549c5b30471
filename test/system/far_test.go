package system

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// A client and an executor that share only a bus: the folder of a job travels over it, and what the job writes comes
// back. The client's folder is gone before the executor starts, and neither knows the data folder of the other.
func TestAFolderTravelsOverTheBusAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("bus")
	c.connect()
	for _, s := range serviceNames() {
		if s != "executor" {
			c.start(s + "@server")
		}
	}
	c.awaitNode()
	client, server := filepath.Join(c.dir, "client"), c.data+"server"
	code := filepath.Join(client, "code")
	for name, text := range map[string]string{
		"main.sh": `. lib/say.sh; say "$(cat data.txt)" | tee result.txt`, "lib/say.sh": `say() { echo "the job says: $1"; }`, "data.txt": "hello",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(code, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(code, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.env = []string{"HOME=" + client, "SWITCHYARD_CONTEXT=" + filepath.Join(client, "context.json")}
	if exit, out := c.command("run", "-d", "--id", "far", "--upload", "--work-dir", code, "--", "sh", "main.sh"); exit != 0 || !strings.Contains(out, "uploaded "+code) {
		t.Fatalf("exit code %d: %s", exit, out)
	}
	if err := os.RemoveAll(code); err != nil {
		t.Fatal(err)
	}
	c.start("executor@server")
	jobs := c.await("the end of the job", func(jobs map[train.JobID]train.Job) bool { return jobs["far"].State.Terminal() })
	if j := jobs["far"]; j.State != train.StateSucceeded || j.Spec.CustomDir != "" || j.Spec.Upload == "" {
		t.Errorf("%s: %s, from %q", j.State, j.Message, j.Spec.CustomDir)
	}
	if exit, out := c.command("logs", "far"); exit != 0 || !strings.Contains(out, "the job says: hello\n") {
		t.Errorf("logs: %d, %s", exit, out)
	}
	exit, out := c.command("get", "far")
	file := slices.IndexFunc(strings.Fields(out), func(word string) bool { return filepath.Base(word) == "result.txt" })
	if exit != 0 || file < 0 || strings.Contains(out, "main.sh") {
		t.Fatalf("get: %d, %s", exit, out)
	}
	if exit, out := c.command("get", "far", strings.Fields(out)[file], "--to", "-"); exit != 0 || out != "the job says: hello\n" {
		t.Errorf("get: %d, %s", exit, out)
	}
	copies, _ := filepath.Glob(filepath.Join(server, "jobs", "far*"))
	if entries, _ := os.ReadDir(client); len(copies) == 0 || len(entries) != 0 {
		t.Errorf("the executor has %v, the client %v", copies, entries)
	}
}
