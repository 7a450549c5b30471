// Package launcher starts jobs as the users who submitted them. It is the only code of Switchyard that needs the rights
// of root, and everything that does is here: it checks admission's signature and who asks, makes the folders and
// control groups of an attempt, and starts a supervisor as the user. The supervisor does the rest with the user's
// rights alone: it opens his folders, makes the mounts and starts his programs.
//
// The launcher decides neither what runs nor when, and it reads no file that a user can write.
package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/cgroup"
)

// What the launcher can be asked for.
const (
	doLaunch = "launch" // start an attempt, once
	doSignal = "signal" // ask the supervisor of an attempt to end it
	doKill   = "kill"   // kill what is left of an attempt
	doForget = "forget" // remove the folder of an attempt that is over
	doRetune = "retune" // give the processes of an attempt another number of their processors
)

// request is what the service asks for: one JSON object, and the rest of the stream is empty. The file that may come
// with it goes on to the supervisor.
type request struct {
	Do string `json:"do"`
	// Job is what admission has signed of the job's record; only its id counts if nothing is launched.
	Job     train.Job `json:"job"`
	Attempt int       `json:"attempt"`
	// Bounds are those of the control group. Asked is for the supervisor, which believes of it no more than it must.
	Bounds cgroup.Bounds   `json:"bounds,omitzero"`
	Asked  json.RawMessage `json:"asked,omitempty"`
	// Cores is the number of processors for each process.
	Cores int `json:"cores,omitempty"`
}

// answer is the launcher's answer. Refused says that asking again is of no use.
type answer struct {
	Error   string `json:"error,omitempty"`
	Refused bool   `json:"refused,omitempty"`
	// Left is the number of processes that were killed.
	Left int `json:"left,omitempty"`
}

// maxRequest bounds a request: a spec, and the devices of one machine.
const maxRequest = 4 << 20

// exchangeTime bounds the exchange of a request and its answer.
const exchangeTime = 20 * time.Second

// RefusedError says that the launcher will never start an attempt.
type RefusedError struct{ Why string }

// Error implements error.
func (e *RefusedError) Error() string { return e.Why }

// Client asks the launcher at a socket.
type Client struct{ Socket string }

// Launch starts an attempt of a signed job. It returns once its supervisor has begun, or a RefusedError.
func (c Client) Launch(job train.Job, attempt int, bounds cgroup.Bounds, asked any, file *os.File) error {
	data, err := json.Marshal(asked)
	if err != nil {
		return fmt.Errorf("encode a launch: %w", err)
	}
	_, err = c.ask(request{Do: doLaunch, Job: job, Attempt: attempt, Bounds: bounds, Asked: data}, file)
	return err
}

// Signal asks the supervisor of an attempt to end it.
func (c Client) Signal(job train.JobID, attempt int) error {
	_, err := c.ask(request{Do: doSignal, Job: train.Job{ID: job}, Attempt: attempt}, nil)
	return err
}

// Kill kills the processes of an attempt and returns how many there were.
func (c Client) Kill(job train.JobID, attempt int) (left int, err error) {
	a, err := c.ask(request{Do: doKill, Job: train.Job{ID: job}, Attempt: attempt}, nil)
	return a.Left, err
}

// Forget removes the folder of an attempt without processes.
func (c Client) Forget(job train.JobID, attempt int) error {
	_, err := c.ask(request{Do: doForget, Job: train.Job{ID: job}, Attempt: attempt}, nil)
	return err
}

// Retune asks the supervisor of an attempt to keep each process on some of its processors. It returns a RefusedError if
// the supervisor does not know how to.
func (c Client) Retune(job train.JobID, attempt, cores int) error {
	_, err := c.ask(request{Do: doRetune, Job: train.Job{ID: job}, Attempt: attempt, Cores: cores}, nil)
	return err
}

func (c Client) ask(r request, file *os.File) (a answer, err error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.Socket, Net: "unix"})
	if err != nil {
		return a, fmt.Errorf("reach the launcher (is switchyard-launcher.service running?): %w", err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(exchangeTime))
	data, err := json.Marshal(r)
	if err != nil {
		return a, fmt.Errorf("encode a request to the launcher: %w", err)
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	_, _, err = conn.WriteMsgUnix([]byte{0}, rights, nil) // a file travels with a byte
	if err == nil {
		_, err = conn.Write(data)
	}
	if err = errors.Join(err, conn.CloseWrite()); err == nil {
		err = json.NewDecoder(io.LimitReader(conn, maxRequest)).Decode(&a)
	}
	switch {
	case err != nil:
		return a, fmt.Errorf("ask the launcher to %s attempt %d of %s: %w", r.Do, r.Attempt, r.Job.ID, err)
	case a.Refused:
		return a, &RefusedError{a.Error}
	case a.Error != "":
		return a, fmt.Errorf("%w: %s", errLauncher, a.Error)
	}
	return a, nil
}

var errLauncher = errors.New("launcher")

// receive reads a request, and the file that came with it.
func receive(conn *net.UnixConn) (r request, file *os.File, err error) {
	first, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, got, _, _, err := conn.ReadMsgUnix(first, rights)
	if err != nil || n != 1 {
		return r, nil, errors.Join(errNoRequest, err)
	}
	if messages, err := unix.ParseSocketControlMessage(rights[:got]); err == nil && len(messages) > 0 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) > 0 {
			file = os.NewFile(uintptr(fds[0]), "file of a request")
		}
	}
	data, err := io.ReadAll(io.LimitReader(conn, maxRequest+1))
	if err == nil && len(data) > maxRequest {
		err = fmt.Errorf("%w: it has more than %d bytes", errNoRequest, maxRequest)
	}
	if err == nil {
		r, err = decode(data)
	}
	return r, file, err
}

// decode decodes a request.
func decode(data []byte) (r request, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return r, fmt.Errorf("%w: %w", errNoRequest, err)
	}
	if _, err := train.ParseJobID(string(r.Job.ID)); err != nil || r.Attempt < 1 {
		return r, refused("want the id of a job and the number of an attempt, found %.80q and %d", r.Job.ID, r.Attempt)
	}
	return r, nil
}

var errNoRequest = errors.New("want a request")
