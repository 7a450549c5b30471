//go:build !linux

package demo

import "syscall"

// ownGroup puts a process into a group of its own. It does not end with this one: that is Linux's.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
