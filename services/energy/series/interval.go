package series

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/attribute"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

// Counters turns the intervals of a node into points.
type Counters contract.NodeSeries

// Interval is a node's measured interval, with the energy of each meter already divided.
type Interval struct {
	event.Measured
	// Splits are in the order of the meters.
	Splits []attribute.Split
}

// Add counts an interval and returns its points; missed is the number of intervals lost between the last one and this
// one. A repeated interval returns none.
func (c *Counters) Add(in Interval, stream uint64, s Surroundings) (points []Point, missed uint64) {
	if stream <= c.StreamSequence || in.BootID == c.Boot && in.Sequence <= c.Sequence {
		return nil, 0
	}
	if c.Boot == in.BootID {
		missed = in.Sequence - c.Sequence - 1
	}
	gaps := map[train.JobID]float64{}
	for _, job := range c.Jobs {
		gaps[job] = in.GapAfter(c.Boot, c.Sequence, c.To)
	}
	c.Node, c.Boot, c.Sequence, c.StreamSequence, c.To, c.Jobs = in.Node, in.BootID, in.Sequence, stream, in.To, jobsOf(in)
	c.Missing += missed
	c.Energy = maps.Clone(c.Energy)
	if c.Energy == nil {
		c.Energy = map[string]unit.Energy{}
	}
	for _, meter := range in.Meters {
		if meter.Energy < 0 {
			continue // a counter was reset: this interval is unknown
		}
		key := meter.Component + " " + string(meter.Device)
		c.Energy[key] += meter.Energy
		points = append(points, meterPoint(in, meter, c.Energy[key], s))
	}
	points = append(points, componentPoints(in, s)...)
	points = append(points, jobPoints(in, gaps, s)...)
	return append(points, gridPoint(in, s.Price)...), missed
}

// jobsOf returns the jobs that used the node, in order.
func jobsOf(in Interval) []train.JobID {
	used := map[train.JobID]bool{}
	for _, u := range in.Users {
		used[u.Job] = true
	}
	return slices.Sorted(maps.Keys(used))
}

// meterPoint returns the point of one meter: a GPU, a whole node, or a part of one.
func meterPoint(in Interval, meter event.Meter, counter unit.Energy, s Surroundings) Point {
	p := Point{Time: in.To, Fields: map[string]any{"energy_uj": int64(counter)}}
	if seconds := in.Seconds(meter); seconds > 0 {
		p.Fields["power_w"] = meter.Energy.Joules() / seconds
	}
	switch {
	case wholeNode(meter):
		p.Measurement, p.Tags = NodePower, map[string]string{"node": string(in.Node), "source": meter.Method}
	case meter.Component == "gpu":
		device := s.Device(meter.Device)
		p.Measurement = GPUPower
		p.Tags = map[string]string{
			"cluster": tag(s.Cluster), "node": string(in.Node), "gpu_uuid": cmp.Or(device.UUID, string(meter.Device), unknown), "model": tag(device.Model),
		}
		if device.BusyWatts > 0 {
			p.Fields["limit_w"] = device.BusyWatts
		}
		if meter.Capacity > 0 {
			p.Fields["sm_util_ratio"] = min(max(meter.Busy, workOn(in, meter))/meter.Capacity, 1)
		}
		board(p.Fields, meter.Board)
	default:
		socket := meter.Device.Index()
		p.Measurement = CPUEnergy
		p.Tags = map[string]string{"node": string(in.Node), "zone": meter.Component, "socket": cmp.Or(socket, "all"), "source": meter.Method}
	}
	return p
}

// board adds the state that the driver reports of a GPU.
func board(fields map[string]any, b *event.Board) {
	if b == nil {
		return
	}
	if b.LimitWatts > 0 {
		fields["limit_w"] = b.LimitWatts
	}
	if b.SMRatio != nil {
		fields["sm_util_ratio"] = *b.SMRatio
	}
	if b.MemoryUsed > 0 {
		fields["memory_used_bytes"] = int64(b.MemoryUsed)
	}
	if b.TemperatureC > 0 {
		fields["temperature_c"] = float64(b.TemperatureC)
	}
	fields["throttle"] = strings.Join(b.Throttle, ",")
}

// workOn returns the work of jobs on the device of a meter.
func workOn(in Interval, meter event.Meter) float64 {
	sum := 0.0
	for _, u := range in.Users {
		if u.Component == meter.Component && u.Device == meter.Device {
			sum += u.Work
		}
	}
	return sum
}

// componentPoints returns the parts of the energy of each component. Unlike the counters, they can be summed.
func componentPoints(in Interval, s Surroundings) []Point {
	type row struct{ component, method string }
	sums := map[row]attribute.Split{}
	for i, meter := range in.Meters {
		if meter.Energy < 0 || wholeNode(meter) {
			continue
		}
		key := row{meter.Component, meter.Method}
		sum := sums[key]
		sum.Idle += in.Splits[i].Idle
		sum.Unattributed += in.Splits[i].Unattributed
		sum.Jobs = append(sum.Jobs, in.Splits[i].Jobs...)
		sums[key] = sum
	}
	var points []Point
	for _, key := range slices.SortedFunc(maps.Keys(sums), func(a, b row) int {
		return cmp.Or(cmp.Compare(a.component, b.component), cmp.Compare(a.method, b.method))
	}) {
		sum := sums[key]
		points = append(points, Point{
			Measurement: ComponentEnergy, Time: in.To,
			Tags: map[string]string{"cluster": tag(s.Cluster), "node": string(in.Node), "component": tag(key.component), "method": tag(key.method)},
			Fields: map[string]any{
				"measured_uj": int64(sum.Sum()), "attributed_uj": int64(sum.Sum() - sum.Idle - sum.Unattributed),
				"idle_uj": int64(sum.Idle), "unattributed_uj": int64(sum.Unattributed),
			},
		})
	}
	return points
}

// share is a job's use of a kind of component in an interval.
type share struct {
	owner                    Owner
	component, model, method string
	job                      train.JobID
}

func (a share) compare(b share) int {
	return cmp.Or(
		strings.Compare(a.owner.Tenant, b.owner.Tenant), strings.Compare(a.owner.User, b.owner.User), strings.Compare(a.component, b.component),
		strings.Compare(a.model, b.model), strings.Compare(a.method, b.method), strings.Compare(string(a.job), string(b.job)),
	)
}

// jobPoints returns the use of each job, one point per kind of component. Gaps are the unmeasured seconds before the
// interval in which a job ran.
func jobPoints(in Interval, gaps map[train.JobID]float64, s Surroundings) []Point {
	sums := map[share]attribute.Share{}
	for i, meter := range in.Meters {
		if in.Splits[i].Reset || wholeNode(meter) {
			continue
		}
		for _, j := range in.Splits[i].Jobs {
			key := share{owner: s.Owner(j.Job), component: meter.Component, model: s.Device(meter.Device).Model, method: meter.Method, job: j.Job}
			sum := sums[key]
			sum.Energy, sum.Idle, sum.Estimated = sum.Energy+j.Energy, sum.Idle+j.Idle, sum.Estimated+j.Estimated
			sums[key] = sum
		}
	}
	var points []Point
	n, last := 0, share{}
	for _, key := range slices.SortedFunc(maps.Keys(sums), share.compare) {
		alike := key
		alike.job = last.job
		if n++; alike != last {
			n = 0
		}
		last = key
		points = append(points, jobPoint(in, key, sums[key], n, gaps[key.job], s.Price))
	}
	return points
}

func jobPoint(in Interval, key share, used attribute.Share, n int, gap float64, price tariff.Price) Point {
	d, all := in.To.Sub(in.From).Seconds(), used.Energy+used.Idle
	p := Point{
		Measurement: JobEnergy, Time: in.To,
		Tags: map[string]string{
			"tenant": tag(key.owner.Tenant), "user": tag(key.owner.User), "component": tag(key.component), "device_model": tag(key.model),
			"method": tag(key.method), "node": string(in.Node), "shard": shard(n),
		},
		Fields: map[string]any{
			"job_id": string(key.job), "active_uj": int64(used.Energy), "idle_uj": int64(used.Idle), "estimated": key.method == train.MethodModelled || used.Estimated > 0,
			"measured_s": d, "expected_s": d + gap,
		},
	}
	if price.PerKWh != nil {
		p.Fields["cost"] = *price.PerKWh * price.PUE * all.KilowattHours()
	}
	if price.GramsPerKWh != nil {
		p.Fields["co2e_g"] = *price.GramsPerKWh * price.PUE * all.KilowattHours()
	}
	return p
}

// gridPoint records price and carbon intensity once a minute: the same point for all nodes.
func gridPoint(in Interval, price tariff.Price) []Point {
	p := Point{Measurement: Grid, Tags: map[string]string{"zone": "local"}, Fields: map[string]any{"estimated": price.Estimated}, Time: in.To.Truncate(time.Minute)}
	if price.PerKWh != nil {
		p.Fields["price_kwh"] = *price.PerKWh
	}
	if price.GramsPerKWh != nil {
		p.Fields["gco2_kwh"] = *price.GramsPerKWh
	}
	if len(p.Fields) == 1 {
		return nil
	}
	return []Point{p}
}

// PipeTune returns the power readings of the nodes' own meters under the names that PipeTune's scripts write and its
// reports read: of a PDU, and of the processors.
func PipeTune(in event.Measured) []Point {
	watts := map[string]float64{}
	for _, meter := range in.Meters {
		seconds := in.Seconds(meter)
		if meter.Energy < 0 || seconds <= 0 {
			continue
		}
		w := meter.Energy.Joules() / seconds
		switch {
		case meter.Method == "pdu":
			watts["pdu_power/node_utilization"] += w
		case meter.Method == "pcm" || meter.Method == "rapl" && meter.Component == "cpu":
			watts["pcm_power/node_utilization"] += w
		}
	}
	var points []Point
	for _, measurement := range slices.Sorted(maps.Keys(watts)) {
		points = append(points, Point{
			Measurement: measurement, Tags: map[string]string{"nodename": string(in.Node)}, Fields: map[string]any{"value": watts[measurement]}, Time: in.To,
		})
	}
	return points
}
