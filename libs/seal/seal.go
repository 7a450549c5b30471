// Package seal says which bytes of a job admission signs, and checks such a signature. It is all that a program needs
// which starts jobs and trusts nobody else.
package seal

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// ErrUnsealed says that a job has no signature of admission's, or was changed since.
var ErrUnsealed = errors.New("admission has not signed the job as it is")

// Check returns ErrUnsealed unless a job bears the signature of the key with a public half.
func Check(public string, job train.Job) error {
	pair, err := nkeys.FromPublicKey(public)
	if err != nil {
		return fmt.Errorf("want the public key of admission's signature, U..: %w", err)
	}
	text, err := Text(job)
	if err != nil {
		return err
	}
	if len(job.Seal) == 0 || pair.Verify(text, job.Seal) != nil {
		return fmt.Errorf("%w: %s", ErrUnsealed, job.ID)
	}
	return nil
}

// Signed returns the part of a job's record that is signed, with the signature.
func Signed(job train.Job) train.Job {
	return train.Job{ID: job.ID, Resumed: job.Resumed, Spec: job.Spec, Seal: job.Seal}
}

// Text returns the bytes that are signed. Keys of the spec without a value are left out, so that a later version, which
// has more keys, signs the same bytes.
func Text(job train.Job) ([]byte, error) {
	spec, values := map[string]any{}, reflect.ValueOf(job.Spec)
	for i := range values.NumField() {
		value := values.Field(i)
		if kind := value.Kind(); value.IsZero() || (kind == reflect.Map || kind == reflect.Slice) && value.Len() == 0 {
			continue
		}
		name, _, _ := strings.Cut(values.Type().Field(i).Tag.Get("json"), ",")
		spec[name] = value.Interface()
	}
	text, err := json.Marshal(map[string]any{"id": job.ID, "life": job.Resumed, "spec": spec})
	if err != nil {
		return nil, fmt.Errorf("encode the spec of %s: %w", job.ID, err)
	}
	return text, nil
}
