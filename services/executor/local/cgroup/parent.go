package cgroup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Parent is the folder below which the groups of attempts are made; empty if this process can make none.
type Parent string

// Of returns the group of the attempt with a name, of the installation in a data folder. A copy of that installation in
// another folder has the same attempts, and must not find their processes.
func (p Parent) Of(dataDir, name string) Group {
	if p == "" || name == "" {
		return ""
	}
	return Group(filepath.Join(string(p), fmt.Sprintf("%s.%.4x", strings.ReplaceAll(name, "/", "."), sha256.Sum256([]byte(dataDir)))))
}

// Machine says where a machine has its control groups, and which of them this process is in.
type Machine struct {
	// Mount is /sys/fs/cgroup, Own is /proc/self/cgroup, except in tests.
	Mount, Own string
}

// ThisMachine returns the machine of this process.
func ThisMachine() Machine { return Machine{Mount: "/sys/fs/cgroup", Own: "/proc/self/cgroup"} }

// parentName is the folder of all attempts, leafName that of services which had to make room for it.
const (
	parentName = "switchyard"
	leafName   = "switchyard-services"
)

var errNowhere = errors.New("this process may make no control groups: the systemd unit of switchyard needs Delegate=yes, or switchyard the rights of root")

// Open returns the folder for the groups of attempts. It prefers one in which the kernel bounds memory.
func (m Machine) Open() (Parent, error) {
	own, err := m.own()
	if err != nil {
		return "", err
	}
	second := m.Mount
	if !Group(second).second() {
		second = filepath.Join(m.Mount, "unified")
	}
	var places []place
	for _, folder := range m.delegated(second, own[""]) {
		places = append(places, place{folder: folder, memory: Group(folder).offers("memory")})
	}
	if path, found := own["memory"]; found {
		places = append(places, place{folder: below(filepath.Join(m.Mount, "memory"), path), memory: true})
	}
	slices.SortStableFunc(places, func(a, b place) int { return rank(b) - rank(a) })
	errs := []error{errNowhere}
	for _, p := range places {
		parent, err := p.open()
		if err == nil {
			return parent, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// place is a group below which the groups of attempts may be made. memory says that the kernel bounds memory there.
type place struct {
	folder string
	memory bool
}

func rank(p place) int {
	if p.memory {
		return 1
	}
	return 0
}

// own returns the paths of this process's groups by controller; that of version 2 has none.
func (m Machine) own() (map[string]string, error) {
	text, err := os.ReadFile(m.Own)
	if err != nil {
		return nil, fmt.Errorf("find own control groups: %w", err)
	}
	own := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			for name := range strings.SplitSeq(parts[1], ",") {
				own[name] = parts[2]
			}
		}
	}
	return own, nil
}

// below returns the folder of a group. In a container the mount may show the container's own group at its root.
func below(mount, path string) string {
	folder := filepath.Join(mount, path)
	if _, err := os.Stat(folder); err != nil || strings.Contains(path, "..") {
		return mount
	}
	return folder
}

// delegated lists the groups of version 2 that were left to this process: its own, or the one above if systemd has
// moved it to a leaf. Root may use the whole tree.
func (m Machine) delegated(mount, path string) []string {
	own := below(mount, path)
	var found []string
	for _, folder := range []string{filepath.Dir(own), own} {
		if strings.HasPrefix(folder, mount) && folder != mount && delegates(folder) {
			found = append(found, folder)
		}
	}
	if os.Geteuid() == 0 && Group(mount).second() {
		found = append(found, mount)
	}
	return found
}

// delegates reports whether a group was left to this process: systemd marks it, or it belongs to an ordinary user.
func delegates(folder string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 1)
		if n, err := unix.Getxattr(folder, name, value); err == nil && n == 1 && value[0] == '1' {
			return true
		}
	}
	return os.Geteuid() != 0 && unix.Access(folder, unix.W_OK) == nil && unix.Access(filepath.Join(folder, subtree), unix.W_OK) == nil
}

// offers reports whether a group of version 2 has a controller.
func (g Group) offers(controller string) bool {
	text, _ := os.ReadFile(g.file(controllers))
	return slices.Contains(strings.Fields(string(text)), controller)
}

// open makes the folder for the groups of attempts.
func (p place) open() (Parent, error) {
	here, parent := Group(p.folder), Group(filepath.Join(p.folder, parentName))
	if here.second() && p.memory {
		if err := here.pass("memory"); err != nil {
			return "", err
		}
	}
	if err := os.Mkdir(string(parent), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make a control group: %w", err)
	}
	if here.second() && p.memory {
		if err := parent.pass("memory"); err != nil {
			return "", err
		}
	}
	if unix.Access(string(parent), unix.W_OK) != nil {
		return "", fmt.Errorf("%w: %s belongs to another user", errNowhere, parent)
	}
	return Parent(parent), nil
}

// pass passes a controller on to the groups below. Version 2 allows that only to a group without processes, so they
// move to a leaf.
func (g Group) pass(controller string) error {
	text, _ := os.ReadFile(g.file(subtree))
	if slices.Contains(strings.Fields(string(text)), controller) {
		return nil
	}
	if err := g.write(subtree, "+"+controller); err == nil || !errors.Is(err, unix.EBUSY) {
		return err
	}
	leaf := Group(g.file(leafName))
	if err := os.Mkdir(string(leaf), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a control group: %w", err)
	}
	members, err := os.ReadFile(g.file(processes))
	if err != nil {
		return fmt.Errorf("list a control group: %w", err)
	}
	for pid := range strings.FieldsSeq(string(members)) {
		if _, err := strconv.Atoi(pid); err == nil {
			_ = leaf.write(processes, pid) // it may have ended
		}
	}
	return g.write(subtree, "+"+controller)
}
