package local

import (
	"encoding/json"
	"fmt"
	"net"

	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// DialTerminal connects to a terminal of an attempt.
func (b *Backend) DialTerminal(r rpc.TerminalRequest, number int) (*net.UnixConn, error) {
	if !b.launched(train.Attempt{Job: r.Job, Number: number}) {
		r.Secret = "" // it was checked
	}
	c, err := attempt.In(b.LayoutOf(r.Job), r.Job, number).DialTerminals()
	if err != nil {
		return nil, fmt.Errorf("reach the supervisor of job %s: %w", r.Job, err)
	}
	packet, err := json.Marshal(r)
	if err == nil {
		_, err = c.Write(packet)
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("reach the supervisor of job %s: %w", r.Job, err)
	}
	return c, nil
}
