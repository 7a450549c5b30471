//go:build !linux

package demo

import "syscall"

// ownGroup puts a process into a group of its own. Only Linux can end it with this one.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
