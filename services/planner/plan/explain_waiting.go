package plan

import (
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// space is the most devices that a job of a size and memory finds in one place, all of them and those that are free.
type space struct{ widest, free int }

type spaceKey struct {
	memory unit.Bytes
	least  int
	wish   int
}

// space is what a job finds in one place.
func (a *account) space(c *candidate) space {
	key := spaceKey{c.Spec.EstimatedMemory(), c.min, c.wish}
	if r, known := a.spaces[key]; known {
		return r
	}
	r, sums := space{}, map[string]space{}
	for i := range a.nodes {
		n := &a.nodes[i]
		if !c.suits(n.memory, n.traits) || !a.spans && len(n.devices) < c.min {
			continue
		}
		here := space{len(n.devices), n.free()}
		if a.spans {
			together := n.model + n.island
			here.widest, here.free = here.widest+sums[together].widest, here.free+sums[together].free
			sums[together] = here
		}
		r.widest, r.free = max(r.widest, here.widest), max(r.free, here.free)
	}
	a.spaces[key] = r
	return r
}

// blockers are all the reasons why a job waits, the dominant one first; ahead is the number of those that would be served before.
func (a *account) blockers(c *candidate, ahead int) []train.Reason {
	if len(a.nodes) == 0 {
		return []train.Reason{{Code: ReasonNoNode, Message: "no node is alive", Hint: "start a node agent"}}
	}
	if none, unsuited := a.unsuited(c); unsuited {
		return []train.Reason{none}
	}
	if apart, lossy := a.cutOff(c); lossy {
		return []train.Reason{apart}
	}
	if a.space(c).widest < c.min {
		return []train.Reason{a.tooFew(c)}
	}
	limited, bound := a.bound(c)
	var reasons []train.Reason
	switch takers := a.takers(c); {
	case len(takers) > 0 && takers[0].Priority > c.Priority:
		reasons = append(reasons, train.Reason{Code: ReasonPreemptedByPriority, Message: "its devices go to " + list(takers), Hint: "it goes on from its checkpoint"})
	case len(takers) > 0 || c.first.held() && !bound:
		r := train.Reason{Code: ReasonPreemptedByShorter, Message: "its devices are needed otherwise", Hint: "it goes on from its checkpoint"}
		if len(takers) > 0 {
			r.Message = "its devices go to " + list(takers)
		}
		reasons = append(reasons, r)
	case !c.first.held() && c.Planned != nil:
		reasons = append(reasons, train.Reason{Code: ReasonDevicesGone, Message: "the devices that it was given are gone"})
	}
	if c.head != nil {
		reasons = append(reasons, train.Reason{
			Code: ReasonHeadOfLineBlocked, Message: fmt.Sprintf("waits in line behind %s, which needs %s", c.head.ID, devices(c.head.min)),
			Hint: "the policy fifo lets nobody pass",
		})
		return reasons // devices may well be free
	}
	if bound {
		return append(reasons, limited)
	}
	return append(reasons, a.needs(c, ahead))
}

// bound is the reason of a job that a quota or the power budget keeps from devices.
func (a *account) bound(c *candidate) (train.Reason, bool) {
	if left, has := a.allowance.quotas[c.Spec.Tenant]; has && left < c.min {
		quota := a.granted.quotas[c.Spec.Tenant]
		r := train.Reason{
			Code: ReasonQuotaReached, Message: fmt.Sprintf("needs %s; %q holds %d of its quota of %d", devices(c.min), c.Spec.Tenant, quota-left, quota),
			Hint: "it starts when jobs of the same tenant end",
		}
		if quota < c.min {
			r.Hint = "lower min_devices or ask for a larger quota"
		}
		return r, true
	}
	if a.space(c).free >= c.min && !a.allowed(c) {
		return train.Reason{
			Code: ReasonPowerBudgetReached, Message: fmt.Sprintf("needs %s, and the power budget leaves %.0f W", devices(c.min), max(a.allowance.watts, 0)),
			Hint: "it starts when others end, or with a larger power budget",
		}, true
	}
	return train.Reason{}, false
}

// tooFew is the reason of a job that the present nodes can never hold.
func (a *account) tooFew(c *candidate) train.Reason {
	where, widest := " on one node", "the largest has"
	if a.spans {
		where, widest = "", "there are"
	}
	r := train.Reason{
		Code: ReasonDevicesTooFew, Message: fmt.Sprintf("needs %s%s, and %s %d", devices(c.min), where, widest, a.widest()),
		Hint: "lower min_devices or add devices",
	}
	switch {
	case a.widest() < c.min:
	case c.wish != nowhere:
		r.Message = fmt.Sprintf("needs %s%s%s, and there are not so many", devices(c.min), where, wished(c))
		r.Hint = "lower min_devices or what is asked of the node"
	default:
		r.Message = fmt.Sprintf("needs %s of %s each%s, and no node has them", devices(c.min), c.Spec.EstimatedMemory(), where)
		r.Hint = "lower min_devices or estimated_memory_mib"
	}
	return r
}

// needs is the plain reason: too few devices are free.
func (a *account) needs(c *candidate, ahead int) train.Reason {
	free, where := a.space(c).free, " on one node"
	if a.spans {
		where = ""
	}
	r := train.Reason{
		Code:    ReasonWaitingForDevices,
		Message: fmt.Sprintf("needs %s%s%s, %d free, %d more needed", devices(c.min), where, wished(c), free, max(c.min-free, 0)),
	}
	if ahead > 0 {
		r.Message += "; ahead: " + list(a.waiting[:ahead])
	}
	var silent []*candidate
	for _, o := range a.silent {
		if o.Priority < c.Priority {
			silent = append(silent, o)
		}
	}
	if len(silent) > 0 {
		r.Hint = list(silent) + " cannot be asked to leave: no call of the job API yet"
	}
	return r
}
