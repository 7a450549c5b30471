package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// A connection inside the process needs a key, and may do what its role may do and no more.
func TestAConnectionWithoutTheNetworkNeedsItsKey(t *testing.T) {
	t.Parallel()
	server, keys := bustest.StartGuarded(t)
	ctx, cancelled := context.WithTimeout(t.Context(), time.Minute)
	defer cancelled()
	short, end := context.WithTimeout(ctx, 2*time.Second)
	defer end()
	if _, err := bus.Connect(short, bus.Config{URL: "nats://127.0.0.1:1", Here: server, Name: "planner"}); err == nil {
		t.Error("connected without a key")
	}
	// Nobody listens at this address.
	config := bus.Config{URL: "nats://127.0.0.1:1", Here: server, Keys: string(keys), Name: "admission"}
	bustest.ConnectWith(t, config)
	config.Name = "energy"
	energy, err := bus.Connect(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(energy.Close)
	refused, end := context.WithTimeout(ctx, 2*time.Second) // the server does not answer what it refuses
	defer end()
	if err := energy.Publish(refused, cancel(train.JobID("a"), "")); err == nil {
		t.Error("the energy service cancelled a job")
	}
}
