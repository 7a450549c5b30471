package local

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/launcher"
)

// Retune sets the system parameters of a running attempt: it keeps the processes and all their threads on the given
// number of their processors. If more are wanted than there are, it refuses and gives them all, as a new start would.
// The parameters of a container, and the memory that the processes may take, are set at the start.
func (b *Backend) Retune(_ context.Context, a train.Attempt, s launch.Status, wanted train.Setting) (train.Applied, error) {
	if b.launched(a) { // whose threads belong to another user
		return b.retuneLaunched(a, s, wanted)
	}
	var applied train.Applied
	l, found, err := b.folder(a).KeptLaunch()
	if err != nil || !found {
		return applied, fmt.Errorf("retune %s: read its launch: %w", a.Job, errors.Join(err, os.ErrNotExist))
	}
	for name, value := range wanted.Values {
		if name != train.SettingCores || l.Runtime != engine.None {
			applied.TakeByRestart(name, value, a.Setting.Values[name])
			continue
		}
		if s.Phase != launch.Exited {
			if err := l.KeepOn(s.PID, int(value)); err != nil {
				return applied, fmt.Errorf("retune %s: %w", a.Job, err)
			}
		}
		if why := l.Lacks(int(value)); why != "" {
			applied.Refuse(name, why)
			continue
		}
		applied.Take(name, value)
	}
	return applied, nil
}

// retuneLaunched has the launcher tell the supervisor of an attempt. Until that has written down what it did, the value
// is neither taken nor refused.
func (b *Backend) retuneLaunched(a train.Attempt, s launch.Status, wanted train.Setting) (applied train.Applied, err error) {
	for name, value := range wanted.Values {
		started := a.Setting.Values[name]
		if name != train.SettingCores || s.Phase == launch.Exited || a.Setting.Generation == wanted.Generation {
			applied.TakeByRestart(name, value, started)
			continue
		}
		tuned, err := attempt.In(b.people.Layout, a.Job, a.Number).Tuned()
		if err == nil && tuned.Cores != int(value) {
			err = b.people.launcher.Retune(a.Job, a.Number, int(value))
		}
		_, unable := errors.AsType[*launcher.RefusedError](err)
		switch {
		case err != nil && !unable:
			return applied, fmt.Errorf("retune %s: %w", a.Job, err)
		case unable || tuned.Cores == int(value) && tuned.Restarts:
			applied.TakeByRestart(name, value, started)
		case tuned.Cores == int(value) && tuned.Refused != "":
			applied.Refuse(name, tuned.Refused)
		case tuned.Cores == int(value):
			applied.Take(name, value)
		}
	}
	return applied, nil
}
