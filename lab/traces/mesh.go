package traces

import (
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/lab/rows"
)

// mesh is the piecewise linear interpolation over tetrahedra of points at (nodes, devices, local batch).
type mesh struct {
	points []point
	cells  [][4]int
}

func parseMesh(name string, points, simplices []byte) (*mesh, error) {
	all, err := rows.Parse(name+"/points", points, "num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return nil, err
	}
	m := &mesh{}
	for _, row := range all {
		x, err := row.Numbers("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
		if err != nil {
			return nil, err
		}
		m.points = append(m.points, point{x[0], x[1], x[2], StepTime{x[3], x[4]}})
	}
	if all, err = rows.Parse(name+"/simplices", simplices, "p0", "p1", "p2", "p3"); err != nil {
		return nil, err
	}
	for _, row := range all {
		x, err := row.Numbers("p0", "p1", "p2", "p3")
		if err != nil {
			return nil, err
		}
		m.cells = append(m.cells, [4]int{int(x[0]), int(x[1]), int(x[2]), int(x[3])})
	}
	return m, nil
}

func (p point) where() [3]float64 { return [3]float64{p.nodes, p.devices, p.batch} }

// at interpolates in the first tetrahedron that holds x; false if no tetrahedron does.
func (m *mesh) at(x [3]float64) (StepTime, bool) {
	const slack = -1e-9
	for _, cell := range m.cells {
		weights, ok := m.barycentric(cell, x)
		if !ok || min(weights[0], weights[1], weights[2], weights[3]) < slack {
			continue
		}
		var t StepTime
		for i, w := range weights {
			t.Step += w * m.points[cell[i]].Step
			t.Sync += w * m.points[cell[i]].Sync
		}
		return t, true
	}
	return StepTime{}, false
}

// barycentric are the weights of a cell's corners that give x; false for a flat cell.
func (m *mesh) barycentric(cell [4]int, x [3]float64) ([4]float64, bool) {
	last := m.points[cell[3]].where()
	var edges [3][3]float64
	for i := range edges {
		edges[i] = minus(m.points[cell[i]].where(), last)
	}
	volume := determinant(edges)
	if math.Abs(volume) < 1e-12 {
		return [4]float64{}, false
	}
	d := minus(x, last)
	var w [4]float64
	w[3] = 1
	for i := range edges {
		replaced := edges
		replaced[i] = d
		w[i] = determinant(replaced) / volume
		w[3] -= w[i]
	}
	return w, true
}

func minus(a, b [3]float64) [3]float64 { return [3]float64{a[0] - b[0], a[1] - b[1], a[2] - b[2]} }

func determinant(m [3][3]float64) float64 {
	return m[0][0]*(m[1][1]*m[2][2]-m[1][2]*m[2][1]) - m[0][1]*(m[1][0]*m[2][2]-m[1][2]*m[2][0]) + m[0][2]*(m[1][0]*m[2][1]-m[1][1]*m[2][0])
}

// nearest answers for points outside of all tetrahedra: on the nearest measured number of nodes, linearly between the
// measured devices and batches there.
func (s *StepTimes) nearest(x [3]float64) StepTime {
	nodes := math.Inf(1)
	for _, p := range s.points {
		if math.Abs(p.nodes-x[0]) < math.Abs(nodes-x[0]) {
			nodes = p.nodes
		}
	}
	byDevices := map[float64]*series{}
	for _, p := range s.points {
		if p.nodes == nodes {
			if byDevices[p.devices] == nil {
				byDevices[p.devices] = &series{}
			}
			byDevices[p.devices].add(p.batch, p.StepTime)
		}
	}
	over := series{}
	for _, devices := range slices.Sorted(maps.Keys(byDevices)) {
		byDevices[devices].sort()
		over.add(devices, byDevices[devices].at(x[2]))
	}
	return over.at(x[1])
}
