package executor

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/settings"
)

var errRoot = errors.New("the jobs of this executor would run as root")

// allowRoot refuses to run jobs as root on a machine that other people use. It warns if nobody else can log in, as in a
// container or on a fresh machine.
func allowRoot(c settings.Executor, uid int, etc string, log *slog.Logger) error {
	if uid != 0 || c.Backend != settings.BackendLocal || c.AllowRootJobs || c.RunAs == settings.RunAsSubmitter {
		return nil
	}
	if others := people(etc); len(others) > 0 {
		return fmt.Errorf("%w, and others use this machine (%s): start it as an ordinary user, or give --allow-root-jobs if every submitter may be root",
			errRoot, strings.Join(others[:min(len(others), 3)], ", "))
	}
	log.Warn("jobs run as root: start Switchyard as an ordinary user as soon as others use this machine")
	return nil
}

// people returns the ordinary users that can log in by a password or a key, by the files of a folder such as /etc.
// Images and fresh machines have a user whom nobody can be.
func people(etc string) []string {
	const firstPerson, nobody = 1000, 65534
	locked := map[string]bool{}
	for _, f := range fields(filepath.Join(etc, "shadow")) {
		locked[f[0]] = len(f) > 1 && (f[1] == "" || strings.ContainsAny(f[1][:1], "!*"))
	}
	var found []string
	for _, f := range fields(filepath.Join(etc, "passwd")) {
		if len(f) < 7 {
			continue
		}
		uid, err := strconv.Atoi(f[2])
		if err != nil || uid < firstPerson || uid == nobody || strings.HasSuffix(f[6], "/nologin") || strings.HasSuffix(f[6], "/false") {
			continue
		}
		if _, err := os.Stat(filepath.Join(f[5], ".ssh", "authorized_keys")); err == nil || !locked[f[0]] {
			found = append(found, f[0])
		}
	}
	return found
}

// fields returns the lines of a file as the words between colons; a file that cannot be read has none.
func fields(path string) [][]string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var all [][]string
	for line := range strings.Lines(string(data)) {
		all = append(all, strings.Split(strings.TrimSpace(line), ":"))
	}
	return all
}
