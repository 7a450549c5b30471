package recur

import (
	"math"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// ChooseLimit returns the window of least cost, among equals the one of the higher limit. Eta 1 takes the least
// energy, 0 the least time. MaxPowerWatts is that of Group. ok is false without a window.
func ChooseLimit(windows []contract.PowerWindow, eta, maxPowerWatts float64) (contract.PowerWindow, bool) {
	var choice contract.PowerWindow
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
func highest(windows []contract.PowerWindow) contract.PowerWindow {
	var top contract.PowerWindow
	for _, w := range windows {
		if w.LimitWatts > top.LimitWatts {
			top = w
		}
	}
	return top
}
