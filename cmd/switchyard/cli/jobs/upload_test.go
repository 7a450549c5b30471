package jobs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestAJobTravelsIfNoNodeIsThisMachine(t *testing.T) {
	here, there, pods := &train.Node{BootID: "a"}, &train.Node{BootID: "b"}, &train.Node{BootID: "c", Backend: train.BackendKubernetes}
	for _, tc := range []struct {
		nodes []*train.Node
		want  bool
	}{
		{nil, false}, {[]*train.Node{here}, false}, {[]*train.Node{there, here}, false}, {[]*train.Node{there}, true}, {[]*train.Node{pods}, false}, {[]*train.Node{pods, there}, true},
	} {
		if got := elsewhere(tc.nodes, "a"); got != tc.want {
			t.Errorf("%+v: %v", tc.nodes, got)
		}
	}
}

func TestWhenAFolderIsUploaded(t *testing.T) {
	s := clitest.New(t, Commands()...)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte("print(1)"), 0o600); err != nil {
		t.Fatal(err)
	}
	boot, err := proc.Root("/proc").BootID()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, boot, folder, flag string
		uploaded                 bool
	}{
		{"a node is this machine", boot, dir, "", false},
		{"as asked for", boot, dir, "--upload", true},
		{"no node is this machine", "another", dir, "", true},
		{"but the nodes have the folder", "another", dir, "--upload=false", false},
		{"a folder of the other machine", "another", filepath.Join(dir, "not-here"), "", false},
	} {
		clitest.Put(t, s.Bus, contract.Nodes, "n", train.Node{ID: "n", BootID: tc.boot})
		var f submitFlags
		fs := pflag.NewFlagSet("submit", pflag.ContinueOnError)
		f.declare(fs)
		if err := fs.Parse(slices.DeleteFunc([]string{tc.flag}, func(word string) bool { return word == "" })); err != nil {
			t.Fatal(err)
		}
		spec := train.Spec{WorkDir: tc.folder}
		if err := f.travel(t.Context(), s.Console, s.Yard(clitest.Noon), fs, &spec); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if tc.uploaded != train.IsUpload(spec.Upload) || tc.uploaded != (spec.WorkDir == "") {
			t.Errorf("%s: %+v", tc.name, spec)
		}
	}
	if _, said := s.Printed(); !strings.Contains(said, "uploaded before: "+dir) || strings.Count(said, "no node is this machine") != 1 {
		t.Errorf("it says %q", said)
	}
}

func TestTheFolderThatAJobBringsAlong(t *testing.T) {
	for _, tc := range []struct {
		spec         train.Spec
		dir, workDir string
	}{
		{train.Spec{WorkDir: "/home/ann/p"}, "/home/ann/p", ""},
		{train.Spec{CustomDir: "/home/ann/p"}, "/home/ann/p", ""},
		{train.Spec{CustomDir: "/home/ann/p", WorkDir: "/home/ann/p/src"}, "/home/ann/p", "/custom/src"},
		{train.Spec{CustomDir: "/home/ann/p", WorkDir: "/custom/src"}, "/home/ann/p", "/custom/src"},
		{train.Spec{CustomDir: "/home/ann/p", WorkDir: "/scratch"}, "/home/ann/p", "/scratch"},
	} {
		if dir, workDir := folderOf(tc.spec); dir != tc.dir || workDir != tc.workDir {
			t.Errorf("%+v: %s, %s", tc.spec, dir, workDir)
		}
	}
}

// Where this machine's programs are says nothing about another machine; what the person names does.
func TestAJobThatTravelsLeavesTheProgramsOfThisMachine(t *testing.T) {
	for name, value := range map[string]string{"PATH": "/here/bin", "VIRTUAL_ENV": "/here", "CONDA_PREFIX": "/c", "LANG": "de", "LC_ALL": "C"} {
		t.Setenv(name, value)
	}
	spec := train.Spec{Env: map[string]string{"PATH": "/there/bin", "VIRTUAL_ENV": "/here", "CONDA_PREFIX": "/c", "LANG": "de", "LC_ALL": "C", "A": "1"}}
	leavePrograms(&spec)
	if diff := cmp.Diff(map[string]string{"PATH": "/there/bin", "LANG": "de", "LC_ALL": "C", "A": "1"}, spec.Env); diff != "" {
		t.Error(diff)
	}
}
