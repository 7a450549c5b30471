package rpc

import (
	"errors"
	"fmt"
	"io/fs"
)

// Refusal is the error of a request that is the asker's mistake, not the answerer's trouble. It reaches the asker as it
// is.
type Refusal struct {
	// Message says why.
	Message string
	// Kind is fs.ErrNotExist if what was asked for does not exist, fs.ErrInvalid if the request itself is wrong.
	Kind error
}

// Error implements error.
func (r Refusal) Error() string { return r.Message }

// Unwrap returns the kind.
func (r Refusal) Unwrap() error { return r.Kind }

// Missing returns the refusal of a request for something that does not exist.
func Missing(format string, args ...any) error {
	return Refusal{fmt.Sprintf(format, args...), fs.ErrNotExist}
}

// Invalid returns the refusal of a wrong request.
func Invalid(format string, args ...any) error {
	return Refusal{fmt.Sprintf(format, args...), fs.ErrInvalid}
}

// The words for kinds on the wire.
const (
	notExist = "not-exist"
	invalid  = "invalid"
)

// KindOf returns the word for the kind of an answerer's error; empty for trouble of its own.
func KindOf(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notExist
	case errors.Is(err, fs.ErrInvalid):
		return invalid
	}
	return ""
}

// Refused returns the error of a message and a kind as they came over the wire.
func Refused(message, kind string) error {
	switch kind {
	case notExist:
		return Refusal{message, fs.ErrNotExist}
	case invalid:
		return Refusal{message, fs.ErrInvalid}
	}
	return errors.New(message)
}
