package launch

import (
	"errors"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// ErrSecret says that the value of a secret variable is not there, or that the job's user may not have it. No
// repetition helps.
var ErrSecret = errors.New("no value for")

// SecretMissing returns the end of an attempt that lacks a secret.
func SecretMissing(err error) train.Exit {
	return train.Exit{Code: CannotStart, Message: err.Error(), Reason: train.Reason{
		Code: "SecretMissing", Message: err.Error(), Hint: "put it there as docs/job-file.md says of secret_env, and submit the job again",
	}}
}
