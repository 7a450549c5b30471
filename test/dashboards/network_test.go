package dashboards

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// probe adds to the recording plausible reports of two nodes' agents on the network: packets into one of them are lost
// for a minute, packets into the other are delayed to the end, and the agent of the second falls silent two minutes
// before.
func probe(t *testing.T, b *bus.Bus, from, to time.Time) {
	t.Helper()
	slots := int64(train.ProbeSlot / time.Second)
	first, last := from.Unix()/slots, to.Unix()/slots-1
	for slot := first; slot <= last; slot++ {
		into1 := train.LinkWindow{ID: "to-lab1", State: train.LinkIsWell, Sent: 300, RTTSeconds: 0.0002, RTTHighSeconds: 0.0005}
		into2 := train.LinkWindow{ID: "to-lab2", State: train.LinkIsWell, Sent: 300, RTTSeconds: 0.0002, RTTHighSeconds: 0.0004}
		lost := 0
		if n := slot - first; n >= 6 && n < 12 {
			lost = 5
			into1.State, into1.Lost, into1.Loss = train.LinkLoses, 3*lost, 0.05
		}
		if slot > last-10 {
			into2.State, into2.DelaySeconds, into2.RTTSeconds, into2.RTTHighSeconds = train.LinkIsSlow, 0.012, 0.0122, 0.0131
		}
		tell(t, b, slot, "links-0", event.FactJudged, event.LinksJudged{Slot: slot, Links: []train.LinkWindow{into1, into2}})
		count := func(sent, received uint32, arrived, answered int) event.ProbesCounted {
			return event.ProbesCounted{
				Slot: slot, Sent: []train.SentProbes{{Flow: sent, Sent: 100, Acked: answered, RTTSeconds: into2.RTTSeconds, RTTHighSeconds: into2.RTTHighSeconds}},
				Received: []train.ReceivedProbes{{Flow: received, Count: arrived}},
			}
		}
		tell(t, b, slot, "lab1", event.FactCounted, count(1, 2, 100-lost, 100))
		if slot <= last-12 {
			tell(t, b, slot, "lab2", event.FactCounted, count(2, 1, 100, 100-lost))
		}
	}
}

func tell(t *testing.T, b *bus.Bus, slot int64, id, fact string, body any) {
	t.Helper()
	subject := event.Subject{Entity: "probe", ID: id, Fact: fact, Version: 1}
	if err := b.Publish(within(t), event.Fact{Subject: subject, Key: fmt.Sprintf("%s/%d", subject, slot), Body: body}); err != nil {
		t.Fatal(err)
	}
}

// rule is the used part of an alert.
type rule struct {
	Title string `json:"title"`
	Data  []struct {
		RefID string `json:"refId"`
		Model struct {
			Query string `json:"query"`
		} `json:"model"`
	} `json:"data"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/provisioning/alerting/switchyard.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := json.Unmarshal(text, &file); err != nil || len(file.Groups) != 1 || len(file.Groups[0].Rules) != 3 {
		t.Fatalf("%d groups, error %v", len(file.Groups), err)
	}
	return file.Groups[0].Rules
}
