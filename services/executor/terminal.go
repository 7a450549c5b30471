package executor

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// answerTerminals connects the terminals of people with this machine's jobs. It only passes packets on: the terminals
// of jobs live with their supervisors, so people attach again after this process was restarted.
func answerTerminals(ctx context.Context, b *bus.Bus, on platform, kv buckets) error {
	return bus.AnswerPipes(ctx, b, rpc.TerminalSubject(on.realm.Machine), func(ctx context.Context, r rpc.TerminalRequest) (func(context.Context, *bus.Pipe), error) {
		number, needed, err := kv.attachable(ctx, r)
		if err == nil && !needed && on.local.LayoutOf(r.Job).People {
			err = errNoShell
		}
		if err != nil {
			return nil, err
		}
		job, err := on.local.DialTerminal(r, number)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, p *bus.Pipe) { passOn(ctx, p, job) }, nil
	})
}

var errNotAllowed = errors.New("this terminal does not have the job's key: attach as the user and on the machine that submitted it")

var errNoShell = errors.New("jobs that run as their submitters take a terminal only if they were started by `switchyard shell`, from the user who started them")

// attachable returns the attempt to which a terminal may be attached. needed is set if that needs a secret, which it
// has.
func (kv buckets) attachable(ctx context.Context, r rpc.TerminalRequest) (number int, needed bool, err error) {
	job, err := kv.jobs.Get(ctx, string(r.Job))
	if err != nil {
		return 0, false, fmt.Errorf("read job %s: %w", r.Job, err)
	}
	attempt, err := kv.attempts.Get(ctx, string(r.Job))
	switch {
	case !job.Value.Spec.Shell.Allows(r.Secret):
		return 0, false, errNotAllowed
	case err != nil && !errors.Is(err, bus.ErrNotFound):
		return 0, false, fmt.Errorf("read the attempt of job %s: %w", r.Job, err)
	case err != nil || attempt.Value.Phase != train.PhaseRunning:
		return 0, false, fmt.Errorf("job %s does not run: it is %s", r.Job, job.Value.State)
	}
	return attempt.Value.Number, job.Value.Spec.Shell.Needs(r.Secret), nil
}

// passOn passes packets on between a terminal and a job until one of them is gone.
func passOn(ctx context.Context, p *bus.Pipe, job *net.UnixConn) {
	ctx, cancel := context.WithCancel(ctx)
	var both conc.WaitGroup
	defer both.Wait()
	end := func() { cancel(); _ = job.Close() }
	both.Go(func() {
		defer end()
		p.Watch(ctx)
	})
	both.Go(func() {
		defer end()
		for {
			packet, err := p.Receive(ctx)
			if err != nil {
				return
			}
			if _, err := job.Write(packet); err != nil {
				return
			}
		}
	})
	defer end()
	packet := make([]byte, 2*rpc.TerminalPacketSize)
	for {
		n, err := job.Read(packet)
		if n == 0 || err != nil || p.Send(ctx, packet[:n]) != nil {
			return
		}
	}
}
