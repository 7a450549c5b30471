package energy

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/influxd"
)

func probesAndLinksBecomePoints(t *testing.T, server *influxd.Server) {
	s := storeOn(t, server)
	k := newBooks(t)
	k.startWith(New(s.config))
	slot := time.Now().Add(-10*time.Minute).Unix() / 10
	counted := event.Fact{Subject: event.Subject{Entity: "probe", ID: "n1", Fact: event.FactCounted, Version: 1}, Key: "counted", Body: event.ProbesCounted{
		Slot:     slot,
		Sent:     []train.SentProbes{{Flow: 1, Sent: 60, Acked: 58, RTTSeconds: 0.0002}, {Flow: 2, Sent: 40, Acked: 40, RTTSeconds: 0.0003}, {Flow: 3, Sent: 9}},
		Received: []train.ReceivedProbes{{Flow: 4, Count: 70}, {Flow: 5, Count: 30}}, Late: []train.LateProbes{{Flow: 6, BehindSeconds: 3}},
	}}
	judged := event.Fact{Subject: event.Subject{Entity: "probe", ID: "links-0", Fact: event.FactJudged, Version: 1}, Key: "judged", Body: event.LinksJudged{
		Slot: slot, Links: []train.LinkWindow{
			{ID: "to-n1", State: train.LinkLoses, Sent: 300, Lost: 6, Loss: 0.02, RTTSeconds: 0.0002, RTTHighSeconds: 0.004},
			{ID: "to-n2", State: train.LinkIsSlow, Sent: 290, DelaySeconds: 0.005, RTTSeconds: 0.0052, RTTHighSeconds: 0.009},
			{ID: "to-n3", State: train.LinkIsWell, Sent: 200, Lost: 200},
		},
	}}
	k.publish(counted, judged)
	at := time.Unix((slot+1)*10, 0).UTC()
	for field, want := range map[string]any{"sent": int64(109), "answered": int64(98), "received": int64(100), "late_flows": int64(1), "rtt_s": 0.0003} {
		row := s.eventually(t, "net_probes", field, 1)[at]
		if row["_value"] != want || row["node"] != "n1" || row["cluster"] != "lab" {
			t.Errorf("%s: %v, want %v", field, row, want)
		}
	}
	want := map[string]map[string]any{
		"to-n1": {"sent": int64(300), "lost": int64(6), "loss_ratio": 0.02, "delay_s": 0.0, "state": "loss", "degraded": int64(1), "rtt_s": 0.0002, "rtt_high_s": 0.004},
		"to-n2": {"sent": int64(290), "lost": int64(0), "loss_ratio": 0.0, "delay_s": 0.005, "state": "slow", "degraded": int64(1), "rtt_s": 0.0052, "rtt_high_s": 0.009},
		"to-n3": {"sent": int64(200), "lost": int64(200), "loss_ratio": 0.0, "delay_s": 0.0, "state": "well", "degraded": int64(0)},
	}
	got := map[string]map[string]any{}
	for _, row := range s.query(t, s.raw(), `filter(fn: (r) => r._measurement == "net_link")`) {
		link := row["link"].(string)
		if got[link] == nil {
			got[link] = map[string]any{}
		}
		got[link][row["_field"].(string)] = row["_value"]
	}
	for _, link := range slices.Sorted(maps.Keys(want)) {
		if !maps.Equal(got[link], want[link]) {
			t.Errorf("%s: %v, want %v", link, got[link], want[link])
		}
	}
}
