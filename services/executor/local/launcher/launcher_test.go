package launcher

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestPeopleBeginWhereTheMachineSays(t *testing.T) {
	for text, want := range map[string]int{
		"UID_MIN 500\n": 500, "# UID_MIN 5\nUID_MIN\t\t 2000\n": 2000, "SYS_UID_MIN 100\n": 1000, "UID_MIN 0\n": 1000, "UID_MIN -1\n": 1000, "UID_MIN x\n": 1000, "": 1000,
	} {
		path := filepath.Join(t.TempDir(), "login.defs")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := firstPerson(path); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := firstPerson("/nonexistent"); got != 1000 {
		t.Errorf("without a file: %d", got)
	}
	for _, uid := range []int{-1, 0, 1, 999, nobody} {
		if u, err := person(t.Context(), uid, 1000); err == nil {
			t.Errorf("user %d is the person %+v", uid, u)
		}
	}
}

func TestNothingOfTheLauncherIsPassedOnButTheMachine(t *testing.T) {
	got := ofMachine([]string{"PATH=/bin", "LD_PRELOAD=x", "LC_ALL=C", "NOTIFY_SOCKET=/run/x", "LANG=C", "TZ=UTC", "PATHX=1", "HOME=/root"})
	if want := []string{"PATH=/bin", "LC_ALL=C", "LANG=C", "TZ=UTC"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The key decides what runs as whom: a file that others than root can write is none.
func TestTheKeyIsRoots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root, whose file the key is")
	}
	path := filepath.Join(t.TempDir(), "admission.pub")
	if err := os.WriteFile(path, []byte("UKEY\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if key, err := readKey(path); err != nil || key != "UKEY" {
		t.Errorf("%q, %v", key, err)
	}
	if err := os.Chmod(path, 0o664); err != nil {
		t.Fatal(err)
	}
	if _, err := readKey(path); err == nil || !strings.Contains(err.Error(), "others may write it") {
		t.Errorf("a key that a group may write: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 1, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := readKey(path); err == nil {
		t.Error("a key of another user is taken")
	}
}

// A folder of another user, or a link in its place, is not taken for the one that is needed.
func TestAFolderOfAnotherIsNotTaken(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root, who alone gives folders away")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "own")
	for range 2 {
		if err := makeFolder(path, 64001, 0, ownMode); err != nil {
			t.Fatal(err)
		}
	}
	if err := makeFolder(path, 64002, 0, ownMode); err == nil {
		t.Error("the folder of another user is taken")
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	if err := makeFolder(link, 0, 0, ownMode); err == nil {
		t.Error("a link is taken")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"do": "launch", "job": {"id": "a"}, "attempt": 1, "asked": {}}`))
	f.Add([]byte(`{"do": "kill", "job": {"id": "../x"}, "attempt": -1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data)
		if err != nil {
			return
		}
		if _, err := train.ParseJobID(string(r.Job.ID)); err != nil || r.Attempt < 1 {
			t.Errorf("%q: job %q, attempt %d", data, r.Job.ID, r.Attempt)
		}
	})
}
