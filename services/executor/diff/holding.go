package diff

import "github.com/switchyard-dl/switchyard/libs/train"

// Slot is a device of one of several nodes.
type Slot struct {
	Node   train.NodeID
	Device train.DeviceID
}

// Slots are the devices of all places.
func Slots(places []train.Part) []Slot {
	var list []Slot
	for _, p := range places {
		for _, d := range p.Devices {
			list = append(list, Slot{p.Node, d})
		}
	}
	return list
}

// Holding counts the attempts that hold a device: never more than one, where all executors keep the rules.
type Holding map[Slot]int

// Take counts the devices of all places as held once more.
func (h Holding) Take(places []train.Part) {
	for _, at := range Slots(places) {
		h[at]++
	}
}

// Release undoes a Take.
func (h Holding) Release(places []train.Part) {
	for _, at := range Slots(places) {
		if h[at]--; h[at] <= 0 {
			delete(h, at)
		}
	}
}

// free says whether every device of all places can be taken, since a gang starts as a whole; a device that is listed twice cannot.
func free(places []train.Part, held, taken Holding) bool {
	asked := map[Slot]bool{}
	for _, at := range Slots(places) {
		if held[at] > 0 || taken[at] > 0 || asked[at] {
			return false
		}
		asked[at] = true
	}
	return true
}
