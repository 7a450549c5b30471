package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/user"
	"regexp"
	"strconv"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// arrayOf returns the array that a job is part of, if the job is what the array says; nil if it is part of none.
func (d *handler) arrayOf(ctx context.Context, id train.JobID, s submission) (*train.Job, error) {
	m := s.spec.ArrayMember
	if m == nil || id != train.MemberID(m.Array, m.Index) {
		return nil, nil //nolint:nilnil // it is part of none
	}
	array, err := d.earlier(ctx, id, m.Array)
	if err != nil || array == nil || !isMember(*array, s.spec) {
		return nil, err
	}
	return array, nil
}

// uidOf returns the number of the machine's user who submits a job; 0 if the kernel has not named him. A job of an
// array has that of the array. A name that is only written into a submission does not count.
func uidOf(array *train.Job, s submission) int {
	if array != nil {
		return array.Spec.UID
	}
	return machineUser(s.peer)
}

// ownRole submits the jobs of arrays, conductor those of trials.
const ownRole, conductor = "admission", "experiments"

// conducted returns the submission of a trial's job as one of the person who asked for the experiment, if the
// experiment makes this job.
func (d *handler) conducted(ctx context.Context, id train.JobID, s submission) (submission, error) {
	experiment, trial, is := contract.SplitTrialJob(string(id))
	if !is || s.by != "" || s.role != conductor {
		return s, nil
	}
	var asked bus.Message
	subject := event.TuneSubject(experiment, event.FactSubmitted).String()
	err := d.bus.StoredWhile(ctx, event.StreamTune, []string{subject}, time.Time{}, func(m bus.Message) bool {
		asked = m // the first one stands
		return false
	})
	if err != nil {
		return s, fmt.Errorf("find who asked for the experiment %s: %w", experiment, err)
	}
	who, err := asked.Asker()
	body, unread := event.Decode[event.ExperimentSubmitted](asked.Data)
	var e contract.Experiment
	if errors.Join(err, unread, json.Unmarshal(body.Experiment, &e)) != nil || !e.Tries(trial, s.spec) {
		d.log.Warn("nobody has asked for this trial", "job", id)
		return s, nil //nolint:nilerr // then it is the installation's, as what nobody asked for
	}
	s.by, s.peer = who.Person, fromSocket(who)
	return s, nil
}

// fromSocket returns the person who asks if the service web proves that the kernel has named him.
func fromSocket(who bus.Asker) string {
	if who.Role != "web" || who.Door != "socket" {
		return ""
	}
	return who.Person
}

// isMember reports whether a spec is that of a job of an array.
func isMember(array train.Job, spec train.Spec) bool {
	a, err := train.ParseArray(array.Spec.Array)
	if err != nil {
		return false
	}
	want, err := json.Marshal(array.Spec.Member(array.ID, a, spec.ArrayMember.Index))
	got, failed := json.Marshal(spec)
	return err == nil && failed == nil && bytes.Equal(want, got)
}

// nameless matches what the service web calls users of the machine who have no name. Nobody runs a job as one of them.
var nameless = regexp.MustCompile(`^uid[0-9]+$`)

// machineUser returns the number of the machine's user with a name; 0 if there is none.
func machineUser(name string) int {
	if name == "" || nameless.MatchString(name) {
		return 0
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return 0
	}
	return uid
}
