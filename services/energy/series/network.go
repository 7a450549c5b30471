package series

import (
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// slotEnd returns the end of a slot of probes.
func slotEnd(slot int64) time.Time {
	return time.Unix((slot+1)*int64(train.ProbeSlot/time.Second), 0).UTC()
}

// Probes returns one agent's counts of the probes of a slot.
func Probes(node train.NodeID, c event.ProbesCounted, cluster string) Point {
	var sent, answered, received int
	var trips []float64
	for _, s := range c.Sent {
		sent, answered = sent+s.Sent, answered+s.Acked
		if s.Acked > 0 {
			trips = append(trips, s.RTTSeconds)
		}
	}
	for _, r := range c.Received {
		received += r.Count
	}
	p := Point{
		Measurement: NetProbes, Time: slotEnd(c.Slot), Tags: map[string]string{"cluster": tag(cluster), "node": tag(string(node))},
		Fields: map[string]any{"sent": int64(sent), "answered": int64(answered), "received": int64(received), "late_flows": int64(len(c.Late))},
	}
	if len(trips) > 0 {
		slices.Sort(trips)
		p.Fields["rtt_s"] = trips[len(trips)/2]
	}
	return p
}

// Links returns the results of one window of probes for each link.
func Links(j event.LinksJudged, cluster string) []Point {
	points := make([]Point, 0, len(j.Links))
	for _, l := range j.Links {
		p := Point{
			Measurement: NetLink, Time: slotEnd(j.Slot), Tags: map[string]string{"cluster": tag(cluster), "link": tag(l.ID)},
			Fields: map[string]any{
				"sent": int64(l.Sent), "lost": int64(l.Lost), "loss_ratio": l.Loss, "delay_s": l.DelaySeconds, "state": string(l.State), "degraded": int64(0),
			},
		}
		if l.State != train.LinkIsWell {
			p.Fields["degraded"] = int64(1)
		}
		if l.RTTSeconds > 0 {
			p.Fields["rtt_s"], p.Fields["rtt_high_s"] = l.RTTSeconds, l.RTTHighSeconds
		}
		points = append(points, p)
	}
	return points
}
