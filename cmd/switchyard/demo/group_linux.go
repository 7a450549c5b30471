package demo

import "syscall"

// ownGroup puts a process into a group of its own, and ends it with the thread that started it.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
