package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// A job with an uploaded folder has a copy of it: it finds its files, less the ignored ones, where it starts and as
// /custom, keeps what it writes over a restart, and changes nothing in the folder. An equal folder is uploaded once; a
// folder that the bus does not have ends the job with a reason.
func TestAnUploadedFolderIsTheJobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	code := filepath.Join(c.dir, "code")
	for name, text := range map[string]string{
		"main.sh": `. lib/say.sh; test -e kept && say again && exit 0; touch kept; say first; kill -9 $$`, "lib/say.sh": `say() { echo "$1: $(ls | tr '\n' ' ')"; }`,
		"data.bin": "large", ".switchyardignore": "*.bin\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(code, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(code, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	submit := func(id string, words ...string) (int, string) {
		return c.command(append([]string{"run", "--id", id, "--upload", "--work-dir", code, "--"}, words...)...)
	}
	exit, out := submit("once", "sh", "main.sh")
	for _, want := range []string{"uploaded " + code, "first: kept lib main.sh \n", "again: kept lib main.sh \n"} {
		if exit != 0 || !strings.Contains(out, want) {
			t.Fatalf("exit code %d, no %q in %s", exit, want, out)
		}
	}
	if exit, out = submit("twice", "sh", "-c", "test ! -e kept && test -e ${SWITCHYARD_CUSTOM_DIR:-/custom}/main.sh"); exit != 0 || !strings.Contains(out, "uploaded before: "+code) {
		t.Errorf("exit code %d: %s", exit, out)
	}
	if _, err := os.Stat(filepath.Join(code, "kept")); err == nil {
		t.Error("the job has written into the folder of its submitter")
	}
	c.submitSpec("unknown", train.Spec{Command: []string{"true"}, Upload: strings.Repeat("0", 64)})
	jobs := c.await("an upload that is not there ends the job", state("unknown", train.StateFailed))
	if j := jobs["unknown"]; !strings.Contains(j.Message, "the bus does not have it") {
		t.Errorf("%s: %s", j.Reason, j.Message)
	}
}
