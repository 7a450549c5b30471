package server

import (
	"os"
	"strings"
	"testing"
)

// Files of root in the data folder of a service would keep it from starting again.
func TestRootLeavesTheDataFolderOfOthersAlone(t *testing.T) {
	dir := t.TempDir()
	if os.Getuid() == 0 {
		if err := ownFolder(dir, 0); err != nil {
			t.Errorf("root's own folder: %v", err)
		}
		const nobody = 65534
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if err := ownFolder(dir, 0); err == nil || !strings.Contains(err.Error(), "sudo -u ") {
		t.Errorf("root may use the folder of another: %v", err)
	}
	if err := ownFolder(dir, 1); err != nil {
		t.Errorf("the folder's mode says what others may: %v", err)
	}
}
