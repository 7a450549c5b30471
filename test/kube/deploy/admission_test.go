package deploy

import (
	"path/filepath"
	"strings"
	"testing"
)

// executorAccount is as whom the executor asks the API server.
const executorAccount = "system:serviceaccount:switchyard:executor"

// podOfAJob is like the pods that the executor makes, as far as the API server judges it. Nothing schedules it.
const podOfAJob = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "j-1-0", "labels": {"app.kubernetes.io/managed-by": "switchyard"}}, "spec": {
	"schedulerName": "nobody", "automountServiceAccountToken": false,
	"securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
	"containers": [{"name": "job", "image": "trainer:1", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}}`

// The API server refuses in a namespace of jobs what is no pod of a job, from the executor as from others.
func TestWhatMayBeMadeInANamespaceOfJobs(t *testing.T) {
	s := begin(t)
	s.kubectl("apply", "-f", filepath.Join(manifests, "base", "policy.yaml"))
	s.kubectl("-n", "switchyard-jobs", "create", "rolebinding", "makers", "--clusterrole=edit", "--user=ann", "--serviceaccount=switchyard:executor")
	asks := func(user, manifest string) string {
		if _, err := cluster.Feed(s.ctx, manifest, "create", "--dry-run=server", "--as="+user, "-n", "switchyard-jobs", "-f", "-"); err != nil {
			return err.Error()
		}
		return ""
	}
	s.until("the policy is in force", func() bool { return asks("ann", podOfAJob) != "" })
	const label, image = `"labels": {"app.kubernetes.io/managed-by": "switchyard"}`, `"image": "trainer:1"`
	const own, hardened = `"automountServiceAccountToken": false`, `"allowPrivilegeEscalation": false`
	try := func(what, user, old, changed, want string) {
		t.Helper()
		got := asks(user, strings.Replace(podOfAJob, old, changed, 1))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: the API server answers %q to %s, want %q", what, got, user, want)
		}
	}
	try("a pod of a job", executorAccount, "", "", "")
	try("a pod that passes for one", "ann", "", "", "only Switchyard's executor makes pods with the label")
	try("a pod with a name of a job's", "ann", label, `"labels": {}`, "a name like JOB-ATTEMPT-RANK is one of a job")
	const named = `"name": "j-1-0", ` + label
	try("a pod of its own", "ann", named, `"name": "hers"`, "")
	try("a pod that is no job's", executorAccount, label, `"labels": {}`, "makes pods of jobs alone")
	try("a token", executorAccount, own, `"automountServiceAccountToken": true`, "no token of a service account")
	try("a token by default", executorAccount, own+",", "", "no token of a service account")
	try("privileges", executorAccount, hardened+", ", "", "violates PodSecurity")
	try("capabilities", executorAccount, `"drop": ["ALL"]`, `"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]`, "have no capabilities")
	try("the node's network", executorAccount, own, own+`, "hostNetwork": true`, "violates PodSecurity")
	try("a folder of the node", executorAccount, own, own+`, "volumes": [{"name": "etc", "hostPath": {"path": "/etc"}}]`, "violates PodSecurity")
	claim := func(name string) string {
		return own + `, "resourceClaims": [{"name": "gpu", "resourceClaimName": "` + name + `"}]`
	}
	try("its own claim", executorAccount, own, claim("j-1-0"), "")
	try("the claim of another job", executorAccount, own, claim("victim-1-0"), "use the claim of their own name alone")
	strange := func(name string) string {
		return strings.Replace(strings.Replace(podOfAJob, own, claim(name), 1), named, `"name": "hers"`, 1)
	}
	if said := asks("ann", strange("victim-1-0")); !strings.Contains(said, "is for the pod of a job") {
		t.Errorf("a pod with the claim of a job's: the API server answers %q", said)
	}
	if said := asks("ann", strange("hers")); said != "" {
		t.Errorf("a pod with a claim of its own: the API server answers %q", said)
	}
	try("root", executorAccount, `"runAsNonRoot": true, "runAsUser": 65532`, `"runAsUser": 0`, "violates PodSecurity")

	if _, err := cluster.Feed(s.ctx, strings.Replace(podOfAJob, named, `"name": "hers"`, 1), "create", "--as=ann", "-n", "switchyard-jobs", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Kubectl(s.ctx, "label", "pod", "hers", "--as=ann", "-n", "switchyard-jobs", "app.kubernetes.io/managed-by=switchyard"); err == nil {
		t.Error("a pod becomes one of a job by a label")
	}
	s.kubectl("delete", "pod", "hers", "-n", "switchyard-jobs")

	// A namespace without Pod Security still has no pods of jobs with rights over the node.
	s.kubectl("label", "namespace", "switchyard-jobs", "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
	s.until("Pod Security is off", func() bool {
		return !strings.Contains(asks(executorAccount, strings.Replace(podOfAJob, own, own+`, "hostNetwork": true`, 1)), "PodSecurity")
	})
	try("the node's network", executorAccount, own, own+`, "hostNetwork": true`, "do not share the node's network")
	try("the node's processes", executorAccount, own, own+`, "hostPID": true`, "do not share the node's network")
	try("privileges", executorAccount, hardened+", ", "", "gain no privileges")
	try("privileges before it starts", executorAccount, own, own+`, "initContainers": [{"name": "x", "image": "x", "securityContext": {"privileged": true}}]`, "gain no privileges")

	s.kubectl("label", "namespace", "switchyard-jobs", "switchyard.dev/images=by-digest")
	s.until("images need a digest", func() bool { return asks(executorAccount, podOfAJob) != "" })
	try("a tag", executorAccount, "", "", "image trainer:1 has no digest")
	try("a digest", executorAccount, image, `"image": "trainer@sha256:`+strings.Repeat("0af9", 16)+`"`, "")
	try("half a digest", executorAccount, image, `"image": "trainer@sha256:0af9"`, "has no digest")
}
