package series

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
)

// Clusters is PipeTune's measurement of the ground truth of workloads, in a separate database.
const Clusters = "clusters"

// GroundTruth returns the cheapest known settings for each kind of workload and batch size as PipeTune writes them:
// with text fields, memory in GiB, and whole seconds per epoch. Settings chosen for their energy have no seconds and
// are left out. The newest point of a cluster and batch is valid.
func GroundTruth(l event.Learnt, at time.Time) []Point {
	var points []Point
	for _, b := range l.Best {
		if !(b.EpochSeconds > 0) {
			continue
		}
		p := Point{
			Measurement: Clusters, Time: at, Tags: map[string]string{"clusterID": tag(strings.TrimPrefix(b.Cluster, "kind-")), "batch": number(b.BatchSize)},
			Fields: map[string]any{"duration": number(math.Round(b.EpochSeconds))},
		}
		if cores, ok := b.Setting["cores"]; ok {
			p.Fields["cores"] = number(cores)
		}
		if memory, ok := b.Setting["memory_mib"]; ok {
			const mebibytes = 1024 // per unit of memory
			p.Fields["memory"] = number(memory / mebibytes)
		}
		points = append(points, p)
	}
	return points
}

func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
