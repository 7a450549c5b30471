package bus_test

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
)

func TestUsage(t *testing.T) {
	ctx := within(t)
	b := bustest.Connect(t, bustest.Start(t), "admission")
	if err := b.Publish(ctx, event.OnceFact("j1", event.FactAdmitted, "admitted", event.Admitted{Position: 1})); err != nil {
		t.Fatal(err)
	}
	all, err := b.Usage(ctx)
	if err != nil || len(all) != len(event.Streams())+len(contract.Buckets()) {
		t.Fatalf("%+v, error %v", all, err)
	}
	for _, u := range all {
		switch u.Name {
		case event.StreamJobs:
			if u.Bytes == 0 || u.MaxBytes != 4<<30 || !u.Refuses || u.AlmostFull() {
				t.Errorf("%+v", u)
			}
		case event.StreamSamples:
			if u.Refuses {
				t.Errorf("%+v", u)
			}
		case string(contract.Jobs):
			if u.MaxBytes != 1<<30 || !u.Refuses {
				t.Errorf("%+v", u)
			}
		}
	}
	if !(bus.Usage{Bytes: 8, MaxBytes: 10, Refuses: true}).AlmostFull() || (bus.Usage{Bytes: 9, MaxBytes: 10}).AlmostFull() || (bus.Usage{Bytes: 9}).Share() != 0 {
		t.Error("fullness is reported wrongly")
	}
}
