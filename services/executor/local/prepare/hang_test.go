package prepare

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/switchyard-dl/switchyard/libs/look"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// The executor starts the jobs of its machine one after another. A folder of a file server that does not answer ends
// the start of its job, which may start elsewhere, and the next job starts.
func TestAFolderThatHangsHoldsUpNobody(t *testing.T) { synctest.Test(t, holdsUpNobody) }

func holdsUpNobody(t *testing.T) {
	p := preparer(t)
	back := make(chan struct{})
	defer close(back)
	wait := func(path string) {
		if strings.HasPrefix(path, "/away") {
			<-back
		}
	}
	p.folders = look.New(func(folder string) error { wait(folder); return checkFolder(folder) })
	p.datasets = look.New(func(home string) string { wait("/away" + home); return datasetsIn(home) })
	here := t.TempDir()
	for name, tc := range map[string]struct {
		spec train.Spec
		want string
	}{
		"custom_dir":  {train.Spec{CustomDir: "/away/code", DatasetsDir: here}, "FileSystemHangs"},
		"work_dir":    {train.Spec{WorkDir: "/away/work", DatasetsDir: here}, "FileSystemHangs"},
		"home":        {train.Spec{User: "nobody-of-this-name"}, "FileSystemHangs"},
		"another job": {train.Spec{CustomDir: here, WorkDir: here, DatasetsDir: here}, ""},
	} {
		err := p.resolveFolders(&launch.Setting{Job: "j", Spec: tc.spec, Capability: "c"})
		got := ""
		if err != nil {
			got = attempt.Unstarted(err).Reason.Code
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q: %v", name, got, tc.want, err)
		}
	}
}
