package nodeagent

import (
	"context"
	"errors"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// ownership is the record of the node, which one agent writes. If two did, the devices of the node would change with
// each record, and both would publish what the meters of their machines show.
type ownership struct{ run.Ownership[train.Node] }

// own waits until this agent may announce its node.
func (s *Service) own(ctx context.Context, p run.Process, nodes *bus.KV[train.Node]) (ownership, error) {
	mine, err := s.owner(p.Common)
	if err != nil {
		return ownership{}, err
	}
	o := ownership{run.Ownership[train.Node]{
		Records: nodes, Key: string(p.Common.NodeID()), Mine: mine, Refresh: announceInterval,
		Of: func(n train.Node) (train.Owner, time.Time) { return n.Owner, n.SeenAt },
	}}
	for ctx.Err() == nil {
		e, err := o.Await(ctx, func(other train.Owner) { p.StandBy("another node agent", other) })
		if err != nil || !o.Foreign(e.Value) {
			p.Owns()
			return o, err
		}
		e.Value.Owner = mine
		if _, err := nodes.Swap(ctx, e.Key, e.Value, e.Revision); err != nil && !errors.Is(err, bus.ErrConflict) {
			return o, err
		}
	}
	return o, ctx.Err()
}

// owner returns the data folder of the agent, or the node itself if Kubernetes sees to it that a node has one agent: a
// pod may get a new folder.
func (s *Service) owner(c run.Common) (train.Owner, error) {
	if s.kubernetes.on() {
		return train.Owner{ID: c.Node, Place: s.kubernetes.Node + ":" + c.DataDir}, nil
	}
	return run.OwnerOf(c)
}

// write writes the record of the node. It returns run.ErrTaken if another agent has taken over.
func (o ownership) write(ctx context.Context, n train.Node) error {
	ctx, cancel := context.WithTimeout(ctx, announceInterval)
	defer cancel()
	n.Owner = o.Mine
	_, err := o.Records.Modify(ctx, o.Key, func(known *train.Node) (bool, error) {
		if o.Foreign(*known) {
			return false, run.ErrTaken
		}
		*known = n
		return true, nil
	})
	return err
}
