package recur

import "math"

// Window is what a device measured while it did the same work at one power limit.
type Window struct {
	LimitWatts   float64 `json:"limit_watts"`
	EnergyJoules float64 `json:"energy_joules"`
	Seconds      float64 `json:"seconds"`
}

// Merge makes one window of those that the ranks of a job measured at the same limit: their energies add up, and they wait for the slowest.
func Merge(ranks []Window) Window {
	var w Window
	for _, r := range ranks {
		w.LimitWatts = r.LimitWatts
		w.EnergyJoules += r.EnergyJoules
		w.Seconds = max(w.Seconds, r.Seconds)
	}
	return w
}

// ChooseLimit gives the window of least cost, the one of the higher limit among equals: eta 1 takes the least energy, 0 the least time. MaxPowerWatts is that
// of Group. Without a window there is no choice.
func ChooseLimit(windows []Window, eta, maxPowerWatts float64) (Window, bool) {
	var choice Window
	least := math.Inf(1)
	for _, w := range windows {
		cost := Cost(eta, maxPowerWatts, w.EnergyJoules, w.Seconds)
		if cost < least || cost == least && w.LimitWatts > choice.LimitWatts {
			choice, least = w, cost
		}
	}
	return choice, len(windows) > 0
}

// highest is the window of the highest limit.
func highest(windows []Window) Window {
	var top Window
	for _, w := range windows {
		if w.LimitWatts > top.LimitWatts {
			top = w
		}
	}
	return top
}
