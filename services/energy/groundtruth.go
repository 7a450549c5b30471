package energy

import (
	"context"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/services/energy/series"
)

// truths returns the consumer of the ground truth.
func (r *recorder) groundTruths() bus.BatchConsumer {
	return bus.BatchConsumer{
		Name: "energy-series-truths", Stream: event.StreamTune, Size: seriesBatch, Wait: seriesWait, Handle: r.learnt,
		Filters: []string{event.Subject{Entity: "tune", ID: "*", Fact: event.FactLearnt, Version: 1}.String()},
	}
}

// learnt writes a batch of ground truth under PipeTune's names. The same fact gives the same points, so no position is
// stored.
func (r *recorder) learnt(ctx context.Context, batch []bus.Message) error {
	var points []series.Point
	for _, m := range batch {
		body, err := event.Decode[event.Learnt](m.Data)
		if err != nil || m.ParseErr != nil {
			continue // it has no usable content
		}
		points = append(points, series.GroundTruth(body, m.Time)...)
	}
	return r.write(ctx, r.config.groundTruth, points)
}
