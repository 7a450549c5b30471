// Package exit holds the exit codes of the command line and the errors that carry them.
package exit

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/rpc"
)

// The exit codes.
const (
	OK          = 0
	Failed      = 1
	Usage       = 2
	Infeasible  = 3
	Unreachable = 4
	// Codes of `switchyard wait`.
	JobFailed    = 100
	Unfinished   = 101
	UnknownJob   = 102
	JobCancelled = 103
)

// Error carries an exit code to main.
type Error struct {
	Code int
	// Text says what went wrong, Fix what to do about it.
	Text, Fix string
}

// Error returns the text and, on a line of its own, the fix.
func (e *Error) Error() string {
	if e.Fix == "" {
		return e.Text
	}
	return e.Text + "\n  fix: " + e.Fix
}

// Errorf returns an error with an exit code. An empty fix is left out.
func Errorf(code int, fix, format string, args ...any) error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...), Fix: fix}
}

// Usagef returns the error of a command line that is wrong.
func Usagef(format string, args ...any) error { return Errorf(Usage, "", format, args...) }

// Code returns the exit code for what a command returned.
func Code(err error) int {
	var coded *Error
	var refusal rpc.Refusal
	switch {
	case err == nil:
		return OK
	case errors.As(err, &coded):
		return coded.Code
	case errors.Is(err, bus.ErrAway):
		return Unreachable
	case errors.As(err, &refusal) && errors.Is(refusal, fs.ErrInvalid):
		return Usage
	}
	return Failed
}
