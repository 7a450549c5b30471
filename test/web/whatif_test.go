package web

import "testing"

// The planner's answer stands in the page: what other wishes would lead to, who would end later, and what cannot be.
func TestAJobsPageAsksWhatIf(t *testing.T) {
	y := newYard(t)
	y.submit("holds", "--name", "holder", "--devices", "2", "--estimated-hours", "2", "--", "sleep", "600")
	y.submit("first", "--name", "patient", "--devices", "2", "--estimated-hours", "3", "--", "sleep", "600")
	y.submit("asked", "--name", "eager", "--estimated-hours", "2", "--", "sleep", "600")
	y.open(y.command("open"))
	y.at("#/jobs/asked")
	y.press("Ask the planner")
	y.shows("as it is", "on 4 devices", "needs 4", "with priority 70", "sooner", "patient ends", "later", "it does not say how much memory")
	if job := y.job("asked"); *job.Spec.Priority != 50 || len(job.Edits) > 0 {
		t.Errorf("a question has changed the job: %+v", job)
	}
}
