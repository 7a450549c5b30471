package deploy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// vision is a namespace of a team, in which no pods of jobs run.
const vision = "team-vision"

// servesTrainingJobs checks that the objects of a namespace are jobs of the tenant that its service account has: they
// show what becomes of the jobs, change with the objects, pause and end with them.
func (s *site) servesTrainingJobs() {
	s.t.Helper()
	s.kubectl("create", "namespace", vision)
	s.t.Cleanup(func() {
		names, _ := cluster.Kubectl(context.Background(), "get", "trainingjobs", "-n", vision, "-o", "name")
		for name := range strings.FieldsSeq(names) {
			_, _ = cluster.Kubectl(context.Background(), "patch", name, "-n", vision, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		}
		_, _ = cluster.Kubectl(context.Background(), "delete", "namespace", vision, "--wait=false")
	})
	s.kubectl("create", "rolebinding", "ann", "-n", vision, "--clusterrole=edit", "--user=ann")
	s.must(s.bus.Publish(s.ctx, event.PeopleFact(event.EntityUser, vision+"=default", time.Now(), event.UserSet{Role: access.User, Tenant: "vision"})))
	s.refusesTrainingJobs()

	s.apply("long", "", `-hidden, "128"`, "max_epochs: 1000, max_devices: 1, priority: 40")
	var id train.JobID
	s.until("the object names its job", func() bool { id = train.JobID(s.status("long", "jobID")); return id != "" })
	s.until("the job runs", func() bool { return s.job(id).EpochsDone > 0 })
	if j := s.job(id); j.Spec.User != vision+".default" || j.Spec.Tenant != "vision" || !strings.HasPrefix(string(id), "long-") {
		s.t.Errorf("the job %s is of %q, tenant %q", id, j.Spec.User, j.Spec.Tenant)
	}
	s.until("the object shows the job", func() bool { return s.status("long", "state") == "running" && s.status("long", "energyKWh") != "" })
	table := strings.Split(s.kubectl("get", "tj", "long", "-n", vision), "\n")
	if want := "NAME STATE REASON PROGRESS% FINISH DEVICES KWH AGE"; strings.Join(strings.Fields(table[0]), " ") != want || !strings.Contains(table[1], "running") {
		s.t.Errorf("kubectl get prints %q", table)
	}

	s.patch("long", `{"job": {"priority": 70}}`)
	s.kubectl("wait", "tj/long", "-n", vision, "--for=condition=Edited", "--timeout=60s")
	if p := s.job(id).Spec.Priority; p == nil || *p != 70 {
		s.t.Errorf("the priority is %v after the edit", p)
	}
	s.patch("long", `{"job": {"max_epochs": 2}}`)
	s.until("a key that is fixed is refused", func() bool {
		return s.status("long", `conditions[?(@.type=="Edited")].reason`) == "Fixed"
	})

	s.patch("long", `{"suspend": true}`)
	s.kubectl("wait", "tj/long", "-n", vision, "--for=condition=Suspended", "--timeout=90s")
	if j := s.job(id); j.State != train.StatePaused {
		s.t.Errorf("the suspended job is %s", j.State)
	}
	s.patch("long", `{"suspend": false}`)
	s.until("the job goes on", func() bool { return s.status("long", "state") == "running" })
	s.kubectl("delete", "tj", "long", "-n", vision, "--as=ann", "--timeout=60s")
	s.until("the job ends with its object", func() bool { return s.job(id).State == train.StateCancelled })

	s.apply("later", "suspend: true", `-hidden, "16"`, "max_epochs: 2, max_devices: 1")
	s.until("the object waits", func() bool { return s.status("later", "state") == "suspended" })
	if got := s.status("later", "jobID"); got != "" {
		s.t.Errorf("a suspended object has the job %s", got)
	}
	s.patch("later", `{"suspend": false}`)
	s.kubectl("wait", "tj/later", "-n", vision, "--for=condition=Complete", "--timeout=90s")
	s.kubectl("delete", "tj", "--all", "-n", vision, "--timeout=60s")
}

// refusesTrainingJobs checks who may do what, and that a refused object says why.
func (s *site) refusesTrainingJobs() {
	s.t.Helper()
	const web = "--as=system:serviceaccount:switchyard:web"
	for question, want := range map[string]string{
		"list trainingjobs.switchyard.dev": "yes", "patch trainingjobs.switchyard.dev --subresource=status": "yes", "create trainingjobs.switchyard.dev": "no",
		"delete trainingjobs.switchyard.dev": "no", "update trainingjobs.switchyard.dev --subresource=status": "no", "get secrets": "no", "list pods": "no",
	} {
		args := append([]string{"auth", "can-i", "-n", vision, web}, strings.Fields(question)...)
		if got, _ := cluster.Kubectl(s.ctx, args...); got != want { // exit status 1 is a no
			s.t.Errorf("web may %s: %s, want %s", question, got, want)
		}
	}
	for what, args := range map[string][]string{
		"makes an object in a stranger's namespace": {"create", "trainingjobs.switchyard.dev", "-n", "switchyard-jobs"}, "deletes one there": {"delete", "trainingjobs.switchyard.dev", "-n", "switchyard-jobs"},
		"names another's job in a status": {"patch", "trainingjobs.switchyard.dev", "--subresource=status", "-n", vision}, "sees a stranger's": {"list", "trainingjobs.switchyard.dev", "-n", "switchyard-jobs"},
	} {
		if got, _ := cluster.Kubectl(s.ctx, append([]string{"auth", "can-i", "--as=ann"}, args...)...); got != "no" {
			s.t.Errorf("who may edit in %s %s: %s", vision, what, got)
		}
	}
	s.apply("borrowed", "serviceAccountName: switchyard-jobs.default", `-hidden, "16"`, "max_epochs: 2, max_devices: 1")
	s.until("an account of another namespace is nobody", func() bool { return s.status("borrowed", "reason") == "NoName" || s.status("borrowed", "jobID") != "" })
	if id := s.status("borrowed", "jobID"); id != "" && !strings.HasPrefix(s.job(train.JobID(id)).Spec.User, vision+".") {
		s.t.Errorf("an object of %s is a job of %q", vision, s.job(train.JobID(id)).Spec.User)
	}
	s.kubectl("delete", "tj", "borrowed", "-n", vision, "--timeout=60s")
	if _, err := cluster.Feed(s.ctx, s.manifest("wrong", "", `-hidden, "16"`, "user: root"), "apply", "--as=ann", "-f", "-"); err == nil || !strings.Contains(err.Error(), `unknown field "spec.job.user"`) {
		s.t.Errorf("an object names its user: %v", err)
	}
	s.apply("huge", "", `-hidden, "16"`, "max_epochs: 2, min_devices: 99, max_devices: 99")
	s.until("the object says why", func() bool { return s.status("huge", "state") == "rejected" })
	if message := s.status("huge", "message"); s.status("huge", `conditions[?(@.type=="Accepted")].status`) != "False" || message == "" {
		s.t.Errorf("the reason in the status is %q", message)
	}
}

func (s *site) manifest(name, more, flags, keys string) string {
	return fmt.Sprintf("apiVersion: switchyard.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: %s, namespace: %s}\nspec:\n  %s\n  job: {command: [/usr/local/bin/switchyard-trainer, %s], batch_size: 32, training_set_size: 4000, %s}\n",
		name, vision, more, flags, keys)
}

func (s *site) apply(name, more, flags, keys string) {
	s.t.Helper()
	_, err := cluster.Feed(s.ctx, s.manifest(name, more, flags, keys), "apply", "--as=ann", "-f", "-")
	s.must(err)
}

func (s *site) patch(name, spec string) {
	s.t.Helper()
	s.kubectl("patch", "tj", name, "-n", vision, "--as=ann", "--type=merge", "-p", `{"spec": `+spec+`}`)
}

func (s *site) status(name, field string) string {
	s.t.Helper()
	return s.kubectl("get", "tj", name, "-n", vision, "-o", "jsonpath={.status."+field+"}")
}
