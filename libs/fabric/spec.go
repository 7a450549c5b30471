package fabric

import (
	"fmt"
	"strconv"
	"strings"
)

// Generate returns the network for a word like fattree:12, vl2:40,24,40 or bcube:8,4. Known is false for other words.
func Generate(word string, directed bool) (t *Topology, p Paths, known bool, err error) {
	kind, list, _ := strings.Cut(word, ":")
	want, known := map[string]int{"fattree": 1, "vl2": 3, "bcube": 2}[kind]
	if !known || list == "" {
		return nil, Paths{}, false, nil
	}
	var n []int
	for field := range strings.SplitSeq(list, ",") {
		x, err := strconv.Atoi(field)
		if err != nil {
			return nil, Paths{}, true, fmt.Errorf("topology %s: %q is no number", word, field)
		}
		n = append(n, x)
	}
	if len(n) != want {
		return nil, Paths{}, true, fmt.Errorf("topology %s: want fattree:PORTS, vl2:PORTS,PORTS,SERVERS or bcube:PORTS,LEVELS",
			word)
	}
	switch kind {
	case "fattree":
		t, p, err = FatTree(n[0], directed)
	case "vl2":
		t, p, err = VL2(n[0], n[1], directed)
	default:
		t, p, err = BCube(n[0], n[1], directed)
	}
	return t, p, true, err
}
