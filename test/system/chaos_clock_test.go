package system

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// noClock says why no clock can be set here.
func noClock(*storm) string {
	if runtime.GOARCH != "amd64" {
		return "the clock of a process is set by instructions of amd64"
	}
	return ""
}

var errClock = errors.New("its functions of time are not as expected")

// setBack sets the clock of a running process back, and of no other: it puts a few instructions of its own before the
// function of the kernel's page of functions (vdso) that reads the clock. Programs in Go read it in no other way.
func setBack(pid int, by time.Duration) (restore func() error, err error) {
	memory, err := os.OpenFile(filepath.Join("/proc", fmt.Sprint(pid), "mem"), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	base, image, err := vdso(pid, memory)
	if err != nil {
		return nil, err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	var entry int64
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			entry = int64(s.Value)
		}
	}
	// save both arguments; ask the kernel; for clock 0, the real time, subtract seconds; return
	code := []byte{0x57, 0x56, 0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0x5e, 0x5f, 0x85, 0xff, 0x75, 0x07, 0x48, 0x81, 0x2e}
	code = append(binary.LittleEndian.AppendUint32(code, uint32(by/time.Second)), 0xc3)
	room := int64(len(image) - len(code))
	if entry == 0 || len(bytes.Trim(image[room:], "\x00")) > 0 {
		return nil, errClock
	}
	jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(room-entry-5))
	before := bytes.Clone(image[entry : entry+5])
	write := func(at int64, b []byte) error {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // no thread may read half of it
		_, err := memory.WriteAt(b, base+at)
		return errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
	}
	return func() error { return errors.Join(write(entry, before), memory.Close()) }, errors.Join(write(room, code), write(entry, jump))
}

// vdso returns the page of the kernel's functions in a process, and its address.
func vdso(pid int, memory *os.File) (base int64, image []byte, err error) {
	maps, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "maps"))
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(string(maps)) {
		var end int64
		if !strings.Contains(line, "[vdso]") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &base, &end); err != nil {
			return 0, nil, err
		}
		image = make([]byte, end-base)
		_, err := memory.ReadAt(image, base)
		return base, image, err
	}
	return 0, nil, errClock
}

// clocksBack sets the clock of every service and of the bus back, as if the machine's had been.
func clocksBack(by time.Duration) func(s *storm) (func(), error) {
	return func(s *storm) (func(), error) {
		var restores []func() error
		var errs []error
		for name, cmd := range s.procs {
			restore, err := setBack(cmd.Process.Pid, by)
			if err != nil {
				errs = append(errs, fmt.Errorf("set the clock of %s: %w", name, err))
			}
			if restore != nil {
				restores = append(restores, restore)
			}
		}
		return func() {
			for _, restore := range restores {
				_ = restore() // a process that has ended has no clock
			}
		}, errors.Join(errs...)
	}
}
