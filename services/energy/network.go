package energy

import (
	"context"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/influx"
	"github.com/switchyard-dl/switchyard/services/energy/series"
)

// network returns the consumer of the counts and results of network probes.
func (r *recorder) network() bus.BatchConsumer {
	return bus.BatchConsumer{
		Name: "energy-series-network", Stream: event.StreamSamples, Filters: []string{"yard.probe.*.counted.v1", "yard.probe.*.judged.v1"},
		Size: seriesBatch, Wait: seriesWait, Handle: r.probed,
	}
}

// probed writes a batch of slots and windows. Their points follow from them alone, so it can be repeated.
func (r *recorder) probed(ctx context.Context, batch []bus.Message) error {
	var points []series.Point
	for _, m := range batch {
		switch {
		case m.ParseErr != nil:
		case m.Parsed.Fact == event.FactCounted:
			if c, err := event.Decode[event.ProbesCounted](m.Data); err == nil {
				points = append(points, series.Probes(train.NodeID(m.Parsed.ID), c, r.config.cluster))
			}
		default:
			if j, err := event.Decode[event.LinksJudged](m.Data); err == nil {
				points = append(points, series.Links(j, r.config.cluster)...)
			}
		}
	}
	return r.write(ctx, influx.Bucket(r.config.database, series.Raw), points)
}
