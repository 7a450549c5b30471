package train

import (
	"maps"
	"slices"
	"unique"
)

// Share saves memory in a decoded job: equal strings become one, slices get no spare room, and what equals a part of
// the job that was decoded before becomes that part, for example the environment of the jobs of an array.
func (j *Job) Share(before *Job) {
	for _, s := range []*string{&j.Reason, &j.Spec.User, &j.Spec.Tenant, &j.Spec.WorkDir, &j.Spec.Image} {
		share(s)
	}
	if m := j.Spec.ArrayMember; m != nil {
		share(&m.Array)
	}
	fit(&j.Blockers)
	for i := range j.Blockers {
		share(&j.Blockers[i].Code)
		same(&j.Blockers[i].Message, j.Message)
		same(&j.Blockers[i].Hint, j.Hint)
	}
	fit(&j.History)
	for i := range j.History {
		c := &j.History[i]
		share(&c.State)
		share(&c.Fact)
		share(&c.Reason)
		same(&c.Message, j.Message)
	}
	if before == nil {
		return
	}
	mine, other := &j.Spec, before.Spec
	for own, others := range map[*map[string]string]map[string]string{
		&mine.Env: other.Env, &mine.SecretEnv: other.SecretEnv, &mine.Labels: other.Labels, &mine.NodeLabels: other.NodeLabels,
	} {
		if maps.Equal(*own, others) && *own != nil && others != nil {
			*own = others
		}
	}
	if slices.Equal(mine.Command, other.Command) && mine.Command != nil && other.Command != nil {
		mine.Command = other.Command
	}
}

// Share saves memory in a decoded plan: equal codes become one string, and slices get no spare room.
func (p *Plan) Share(*Plan) {
	for i := range p.Waiting {
		w := &p.Waiting[i]
		fit(&w.Blockers)
		fit(&w.Holders)
		for k := range w.Blockers {
			share(&w.Blockers[k].Code)
		}
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

// fit lets a slice have no room for more elements.
func fit[E any](s *[]E) {
	if cap(*s) > len(*s) {
		*s = append(make([]E, 0, len(*s)), *s...)
	}
}
