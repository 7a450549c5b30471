package launcher

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// subordinate returns the first range of subordinate ids that a file such as /etc/subuid gives to the user; count is 0
// without one.
func (u User) subordinate(path string) (first, count int) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 || fields[0] != u.Name && fields[0] != strconv.Itoa(u.UID) {
			continue
		}
		first, err := strconv.Atoi(fields[1])
		count, failed := strconv.Atoi(fields[2])
		if err == nil && failed == nil && first > 0 && count > 0 {
			return first, count
		}
	}
	return 0, 0
}

// rootless makes a process root of a user namespace in which root stands for the user, and further ids for those that
// the machine has given to him: what podman needs to run an image with his rights. It keeps his groups.
func (u User) rootless(processes bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Setsid: true, Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, GidMappingsEnableSetgroups: true,
		Credential:  &syscall.Credential{},
		UidMappings: []syscall.SysProcIDMap{{HostID: u.UID, Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: u.GID, Size: 1}},
	}
	if processes {
		a.Cloneflags |= syscall.CLONE_NEWPID
	}
	if first, count := u.subordinate("/etc/subuid"); count > 0 {
		a.UidMappings = append(a.UidMappings, syscall.SysProcIDMap{ContainerID: 1, HostID: first, Size: count})
	}
	next := 1
	if first, count := u.subordinate("/etc/subgid"); count > 0 {
		a.GidMappings = append(a.GidMappings, syscall.SysProcIDMap{ContainerID: 1, HostID: first, Size: count})
		next += count
	}
	for _, g := range u.Groups {
		if g != u.GID {
			a.GidMappings = append(a.GidMappings, syscall.SysProcIDMap{ContainerID: next, HostID: g, Size: 1})
			a.Credential.Groups = append(a.Credential.Groups, uint32(next))
			next++
		}
	}
	return a
}
