package state

import "math"

// Balance is what a tenant has used of the cluster lately, and what it may use by its shares, both as parts of what all
// have used.
type Balance struct {
	Used    float64 `json:"used"`
	Granted float64 `json:"granted"`
}

const (
	// overuseSteps are the steps of an overuse: the order of a queue must not change with every second.
	overuseSteps = 4
	mostOveruse  = 4
)

// Overuse is how many times the part that it may use a tenant has used, from 0 to 4 in quarters: the exponent of the
// fair-share factor of Slurm, 2^-overuse (priority/multifactor, "fair-share").
func (s Balance) Overuse() float64 {
	if !(s.Used > 0) {
		return 0
	}
	return math.Min(math.Round(overuseSteps*s.Used/s.Granted)/overuseSteps, mostOveruse)
}

// BalancesOf compares what tenants have used, in decayed device-seconds, with their shares. A tenant that has used
// something and has no shares has one. Without any shares nobody has a balance.
func BalancesOf(used, shares map[string]float64) map[string]Balance {
	if len(shares) == 0 {
		return nil
	}
	sum, granted := 0.0, 0.0
	for tenant, seconds := range used {
		sum += seconds
		if _, has := shares[tenant]; !has {
			granted++
		}
	}
	for _, n := range shares {
		granted += n
	}
	balances := map[string]Balance{}
	for tenant, seconds := range used {
		own, has := shares[tenant]
		if !has {
			own = 1
		}
		if seconds > 0 {
			balances[tenant] = Balance{Used: seconds / sum, Granted: own / granted}
		}
	}
	return balances
}
