package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// servesPeople checks that a service account is a person by its token: it submits a job and asks for jobs by commands.
// A token for another audience, and one that was withdrawn with its account, are nobody's.
func (s *site) servesPeople() {
	s.t.Helper()
	address, err := cluster.Forward(s.ctx, "switchyard", "deploy/web", 7470)
	s.must(err)
	s.kubectl("create", "serviceaccount", "ann", "-n", "switchyard-jobs")
	file := filepath.Join(s.t.TempDir(), "token")
	as := func(args ...string) string {
		cmd := exec.CommandContext(s.ctx, commandLine, args...)
		cmd.Env = []string{"HOME=" + s.t.TempDir(), "SWITCHYARD_SOCKET=http://" + address, "SWITCHYARD_TOKEN_FILE=" + file}
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	show := func(audience string) {
		token := s.kubectl("create", "token", "ann", "-n", "switchyard-jobs", "--audience="+audience)
		s.must(os.WriteFile(file, []byte(token), 0o600))
	}
	show("another")
	if said := as("ps"); !strings.Contains(said, "another audience than switchyard") {
		s.t.Errorf("a token for another audience: %s", said)
	}
	show("switchyard")
	job := filepath.Join(s.t.TempDir(), "job.yaml")
	s.must(os.WriteFile(job, []byte("name: anns\ncommand: [/usr/local/bin/switchyard-trainer, -hidden, \"16\"]\nbatch_size: 32\ntraining_set_size: 320\nmax_epochs: 2\nmax_devices: 1\n"), 0o600))
	if said := as("submit", "--id", "anns", job); !strings.Contains(said, "anns") {
		s.t.Errorf("submit: %s", said)
	}
	s.until("the job has ended", func() bool { return s.job("anns").State.Terminal() })
	if j := s.job("anns"); j.Spec.User != "switchyard-jobs.ann" || j.State != train.StateSucceeded {
		s.t.Errorf("the job is %s, of %q: %s", j.State, j.Spec.User, j.Message)
	}
	if said := as("user", "set", "ann", "--role", "admin"); !strings.Contains(said, "may not") {
		s.t.Errorf("a user makes himself an admin: %s", said)
	}
	s.kubectl("delete", "serviceaccount", "ann", "-n", "switchyard-jobs")
	s.until("the token is withdrawn", func() bool { return strings.Contains(as("ps"), "does not know the token") })
}
