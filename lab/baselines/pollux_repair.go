package baselines

// repair makes a placement feasible: no job above its limit, no node above its devices, and on each node at most one
// gang that spans nodes. What has to go is drawn at random.
func (s *polluxSearch) repair(genes []uint8) {
	for i := range s.jobs {
		if s.mixed {
			s.unmix(s.row(genes, i))
		}
		s.limit(s.row(genes, i), s.jobs[i].most)
	}
	s.separate(genes)
	for n := range s.nodes {
		s.unload(genes, n)
	}
}

// unmix leaves a gang the devices of one model: that of a random node among its own.
func (s *polluxSearch) unmix(row []uint8) {
	used := 0
	for _, n := range row {
		if n > 0 {
			used++
		}
	}
	if used < 2 {
		return
	}
	model, pick := "", s.dice.IntN(used)
	for at, n := range row {
		if n > 0 {
			if pick == 0 {
				model = s.round.Nodes[at].Model
			}
			pick--
		}
	}
	for at := range row {
		if s.round.Nodes[at].Model != model {
			row[at] = 0
		}
	}
}

// limit takes devices from a job above its limit, one at a time from random nodes.
func (s *polluxSearch) limit(row []uint8, most int) {
	devices := 0
	for _, n := range row {
		devices += int(n)
	}
	for devices > most {
		at := s.dice.IntN(len(row))
		for row[at] == 0 {
			at = (at + 1) % len(row)
		}
		row[at]--
		devices--
	}
}

// separate leaves each node to one gang that spans nodes, in random order of the jobs.
func (s *polluxSearch) separate(genes []uint8) {
	s.order = s.order[:0]
	for i := range s.jobs {
		if spans(s.row(genes, i)) {
			s.order = append(s.order, i)
		}
	}
	if len(s.order) < 2 {
		return
	}
	s.dice.Shuffle(len(s.order), func(i, j int) { s.order[i], s.order[j] = s.order[j], s.order[i] })
	taken := make([]bool, s.nodes)
	for _, i := range s.order {
		row := s.row(genes, i)
		for n := range row {
			if row[n] > 0 && taken[n] {
				row[n] = 0
			}
		}
		if !spans(row) {
			continue
		}
		for n := range row {
			if row[n] > 0 {
				taken[n] = true
			}
		}
	}
}

// spans says whether a row uses several nodes.
func spans(row []uint8) bool {
	used := false
	for _, n := range row {
		if n > 0 {
			if used {
				return true
			}
			used = true
		}
	}
	return false
}

// unload takes devices of an overloaded node back, one at a time from random jobs.
func (s *polluxSearch) unload(genes []uint8, node int) {
	load := 0
	for i := node; i < len(genes); i += s.nodes {
		load += int(genes[i])
	}
	for load > int(s.room[node]) {
		job := s.dice.IntN(len(s.jobs))
		for genes[job*s.nodes+node] == 0 {
			job = (job + 1) % len(s.jobs)
		}
		genes[job*s.nodes+node]--
		load--
	}
}
