package fit

import "github.com/switchyard-dl/switchyard/libs/train"

// after checks the jobs that the job waits for.
func (c *checker) after() {
	all := c.spec.Dependencies()
	if len(all) > MaxAfter {
		c.refuse("OutOfRange", "after", "", "want at most %d jobs, found %d", MaxAfter, len(all))
		return
	}
	seen := map[train.JobID]string{}
	for _, d := range all {
		field := "after." + d.On
		state, known := c.where.Jobs[d.Job]
		switch first, twice := seen[d.Job]; {
		case twice:
			c.refuse("Contradiction", field, "name it once", "%s is also in after.%s", quote(string(d.Job)), first)
		case !known:
			c.refuse("UnknownJob", field, "name jobs by their ids, as `switchyard ps` shows them; an ended job is known for a while only",
				"want a job that was submitted before this one, found %s", quote(string(d.Job)))
		case state.Terminal() && d.Never(state):
			c.reasons = append(c.reasons, d.Unmet(state))
		}
		seen[d.Job] = d.On
	}
}
