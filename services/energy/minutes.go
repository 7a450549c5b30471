package energy

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// minute adds up the intervals of a node that began in one minute. It is kept in memory until it is over: a process
// that starts in the middle of it knows the rest, whose means are good enough to look at.
type minute struct {
	at      time.Time
	seconds float64
	energy  unit.Energy
	devices map[train.DeviceID]deviceMinute
}

// deviceMinute is the part of a device. busy are the seconds of those known in which it worked.
type deviceMinute struct {
	energy      unit.Energy
	busy, known float64
	memory      unit.Bytes
	limit       float64
}

// bookMinute adds an interval to the minute in which it began. The caller holds mu.
func (l *ledger) bookMinute(m event.Measured) {
	at := m.From.UTC().Truncate(time.Minute)
	open := l.minutes[m.Node]
	if open != nil && open.at.Before(at) {
		l.past[contract.MinuteKey(m.Node, open.at)] = open.record(m.Node)
		open = nil
	}
	if open == nil {
		open = &minute{at: at, devices: map[train.DeviceID]deviceMinute{}}
		l.minutes[m.Node] = open
	}
	open.add(m)
}

func (o *minute) add(m event.Measured) {
	seconds := m.To.Sub(m.From).Seconds()
	o.seconds += seconds
	for _, meter := range m.Meters {
		if meter.Component == event.ComponentNode { // the others are part of it
			continue
		}
		o.energy += meter.Energy
		if meter.Device == "" {
			continue
		}
		d := o.devices[meter.Device]
		d.energy += meter.Energy
		if b := meter.Board; b != nil {
			d.memory, d.limit = b.MemoryUsed, b.LimitWatts
			if b.SMRatio != nil {
				d.busy += *b.SMRatio * seconds
				d.known += seconds
			}
		}
		o.devices[meter.Device] = d
	}
}

func (o *minute) record(node train.NodeID) contract.Minute {
	mean := func(e unit.Energy) unit.Power {
		if o.seconds <= 0 {
			return 0
		}
		return unit.Watts(e.Joules() / o.seconds)
	}
	r := contract.Minute{Node: node, At: o.at, Seconds: o.seconds, Power: mean(o.energy), Devices: make(map[train.DeviceID]contract.DeviceMinute, len(o.devices))}
	for id, d := range o.devices {
		shown := contract.DeviceMinute{Power: mean(d.energy), MemoryUsed: d.memory, LimitWatts: d.limit}
		if d.known > 0 {
			use := d.busy / d.known
			shown.Use = &use
		}
		r.Devices[id] = shown
	}
	return r
}
