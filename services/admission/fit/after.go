package fit

import (
	"cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
)

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

// continues checks the job from whose checkpoints this one begins.
func (c *checker) continues() {
	const field = "continue"
	other, from := c.spec.Continue, c.where.Continued
	user := cmp.Or(c.spec.User, c.who.User)
	switch {
	case other == "":
	case from == nil:
		c.refuse("UnknownJob", field, "name the job by its id, as `switchyard ps` shows it; an ended job is known for a while only",
			"want a job that was submitted before this one, found %s", quote(string(other)))
	case from.Spec.User != user:
		c.refuse("NotYourself", field, "copy the files of that job, and let the program load them",
			"%s belongs to %s, and this job to %s", other, quote(from.Spec.User), quote(user))
	case !from.State.Terminal() && from.State != train.StatePaused:
		c.refuse("NotEnded", field, "`switchyard pause "+string(other)+"` makes it leave by its checkpoint",
			"want a job that has ended or is paused, and %s is %s", other, from.State)
	case !from.Saved():
		c.refuse("NoCheckpoint", field, "leave continue out: the job then begins from the beginning", "%s has saved no checkpoint", other)
	case c.spec.MaxEpochs > 0 && from.EpochsDone >= c.spec.MaxEpochs:
		c.refuse("OutOfRange", "max_epochs", "", "want more than the %d epochs that %s has done, found %d", from.EpochsDone, other, c.spec.MaxEpochs)
	case c.onlyPods():
		c.refuse("NotSupported", field, "give both jobs the same snapshots_dir, and let the program load the checkpoint from there",
			"all nodes are those of Kubernetes: checkpoints are not copied between the volumes of pods")
	}
}

// array checks the indices of an array of jobs. A job that was submitted again has the place of the first one in its
// array, and another id.
func (c *checker) array() {
	if m := c.spec.ArrayMember; m != nil && !c.where.Admitted && (c.spec.Array != "" || c.where.ID == train.MemberID(m.Array, m.Index)) {
		c.refuse("Contradiction", "array_member", "leave it out", "admission sets it")
	}
	if c.spec.Array == "" {
		return
	}
	const field = "array"
	most := cmp.Or(c.where.MaxArray, train.MostMembers)
	switch a, err := train.ParseArray(c.spec.Array); {
	case err != nil:
		c.refuse("InvalidArray", field, "", "%v", err)
	case len(a.Indices) > most:
		c.refuse("OutOfRange", field, "submit several arrays, or ask the operator for a larger admission.max_array", "want at most %d jobs, found %d", most, len(a.Indices))
	case len(train.MemberID(c.where.ID, a.Indices[len(a.Indices)-1])) > train.MaxIDLength:
		c.refuse("OutOfRange", field, "choose a shorter --id", "the ids of its jobs are longer than %d characters", train.MaxIDLength)
	case c.where.Taken != "":
		c.refuse("IDTaken", field, "choose another --id", "%s is a job already, and a job of this array would have its id", c.where.Taken)
	}
}
