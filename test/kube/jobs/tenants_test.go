package jobs

import (
	"context"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The pods of a tenant's jobs, their Secrets and Services are in the tenant's namespace, with the Secrets that the jobs
// refer to; another executor finds them there.
func TestTenantsHaveNamespaces(t *testing.T) {
	const namespace = "team-vision"
	y := newYard(t, "--tenant-namespaces=default="+namespace) // the tenant of people without a record
	y.kubectl("create", "namespace", namespace)
	t.Cleanup(func() {
		_, _ = y.cluster.Kubectl(context.Background(), "delete", "namespace", namespace, "--wait=false")
	})
	objects := func(in string) string {
		return y.kubectl("get", "pods,services,secrets", "-n", in, "-l", "app.kubernetes.io/managed-by=switchyard", "-o", "name")
	}
	y.kubectl("create", "secret", "generic", "wandb", "--from-literal=key=xyzzy", "-n", namespace)
	y.kubectl("annotate", "secret", "wandb", "switchyard.dev/tenant=default", "-n", namespace)
	y.submit("theirs", 40, 4, func(s *train.Spec) {
		s.SecretEnv = map[string]string{"WANDB_API_KEY": "secret:wandb/key"}
	})
	y.plan(on("theirs", "gpu:0", "gpu:1"))
	if a := y.running("theirs", 1); a.Namespace != namespace {
		t.Errorf("the record says that its pods are in %s, want %s", a.Namespace, namespace)
	}
	for _, want := range []string{"pod/theirs-1-0", "pod/theirs-1-1", "secret/theirs-1", "service/r-theirs-1"} {
		if got := objects(namespace); !strings.Contains(got, want) {
			t.Errorf("the namespace of the tenant has %s, want %s", got, want)
		}
	}
	if got := objects(y.namespace); got != "secret/switchyard-executor-key" {
		t.Errorf("the namespace of all others has %s", got)
	}
	y.job("theirs", "two epochs", epochs(2))
	y.kill("executor")
	y.start("executor")
	y.plan(on("theirs", "gpu:1"))
	y.running("theirs", 2)
	y.state("theirs", train.StateSucceeded)
	y.ledger("theirs")
	y.until("its log", func() bool { return strings.Contains(y.log("theirs"), "epoch 40/40") })
	y.nothingLeft()
	y.until("nothing is left of the tenant's jobs", func() bool { return objects(namespace) == "" })
}
