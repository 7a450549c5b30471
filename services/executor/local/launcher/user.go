package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// User is a person with an account on this machine.
type User struct {
	Name   string `json:"name"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Groups []int  `json:"groups"`
	Home   string `json:"home"`
	Shell  string `json:"shell"`
}

// lookTime bounds a look at the list of users, which may be on another machine.
const lookTime = 10 * time.Second

// nobody is the user of those who have none.
const nobody = 65534

var (
	errSystemUser = errors.New("belongs to the system: only people run jobs")
	errNoUser     = errors.New("has no account on this machine")
)

// lookUp returns the user with a number or a name, as the machine's list of users (files, LDAP) has him. The programs
// of the system ask it: they know each kind of list.
func lookUp(ctx context.Context, who string) (u User, err error) {
	line, err := said(ctx, "getent", "passwd", who)
	fields := strings.Split(strings.TrimSpace(line), ":")
	if err != nil || len(fields) != 7 {
		return u, fmt.Errorf("user %s %w", who, errNoUser)
	}
	u.Name, u.Home, u.Shell = fields[0], fields[5], fields[6]
	u.UID, err = strconv.Atoi(fields[2])
	gid, failed := strconv.Atoi(fields[3])
	if u.GID = gid; err != nil || failed != nil {
		return u, fmt.Errorf("user %s %w", who, errNoUser)
	}
	groups, err := said(ctx, "id", "-G", "--", u.Name)
	if err != nil {
		return u, fmt.Errorf("find the groups of %s: %w", u.Name, err)
	}
	for word := range strings.FieldsSeq(groups) {
		group, err := strconv.Atoi(word)
		if err != nil {
			return u, fmt.Errorf("find the groups of %s: %w", u.Name, err)
		}
		u.Groups = append(u.Groups, group)
	}
	return u, nil
}

func said(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).Output()
	return string(out), err
}

// person returns the user with a number if jobs may run as him.
func person(ctx context.Context, uid, firstUID int) (User, error) {
	if uid <= 0 || uid < firstUID || uid == nobody {
		return User{}, fmt.Errorf("user %d %w", uid, errSystemUser)
	}
	u, err := lookUp(ctx, strconv.Itoa(uid))
	if err == nil && u.UID != uid {
		err = fmt.Errorf("user %d %w", uid, errNoUser)
	}
	return u, err
}

// firstPerson returns the smallest number of a person, from a file such as /etc/login.defs.
func firstPerson(path string) int {
	const usual = 1000
	data, err := os.ReadFile(path)
	if err != nil {
		return usual
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) != 2 || words[0] != "UID_MIN" {
			continue
		}
		if first, err := strconv.Atoi(words[1]); err == nil && first > 0 {
			return first
		}
	}
	return usual
}

// Environment returns the variables of the user, beside those of the machine.
func (u User) Environment(machine []string) []string {
	return append(slices.Clone(machine), "HOME="+u.Home, "USER="+u.Name, "LOGNAME="+u.Name, "SHELL="+u.Shell)
}

// attributes make a process one of the user. With mounts, it may make mounts that it alone sees, and opens what it
// mounts with the user's rights: it is in a user namespace that knows nobody but him and his groups. With processes, it
// is the first one of a namespace of processes, which sees no others; the kernel ends all of them with it.
func (u User) attributes(mounts, processes bool) *syscall.SysProcAttr {
	const mountCapability = 21 // CAP_SYS_ADMIN, of the namespace
	a := &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}}
	for _, g := range u.Groups {
		a.Credential.Groups = append(a.Credential.Groups, uint32(g))
	}
	if !mounts {
		return a
	}
	a.Cloneflags, a.AmbientCaps, a.GidMappingsEnableSetgroups = syscall.CLONE_NEWUSER, []uintptr{mountCapability}, true
	if processes {
		a.Cloneflags |= syscall.CLONE_NEWNS | syscall.CLONE_NEWPID
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: u.UID, HostID: u.UID, Size: 1}}
	groups := append([]int{u.GID}, u.Groups...)
	slices.Sort(groups)
	for _, g := range slices.Compact(groups) {
		a.GidMappings = append(a.GidMappings, syscall.SysProcIDMap{ContainerID: g, HostID: g, Size: 1})
	}
	return a
}
