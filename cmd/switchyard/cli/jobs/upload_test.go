package jobs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestAJobTravelsIfNoNodeIsThisMachine(t *testing.T) {
	here, there, pods := train.Node{BootID: "a"}, train.Node{BootID: "b"}, train.Node{BootID: "c", Backend: train.BackendKubernetes}
	for _, tc := range []struct {
		nodes []train.Node
		want  bool
	}{
		{nil, false}, {[]train.Node{here}, false}, {[]train.Node{there, here}, false}, {[]train.Node{there}, true}, {[]train.Node{pods}, false}, {[]train.Node{pods, there}, true},
	} {
		if got := elsewhere(tc.nodes, "a"); got != tc.want {
			t.Errorf("%+v: %v", tc.nodes, got)
		}
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
