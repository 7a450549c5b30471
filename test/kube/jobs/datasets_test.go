package jobs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Jobs that name no datasets find the operator's claim at /data: the trainer writes its ledger there.
func TestDatasetsInAClaim(t *testing.T) {
	y := newYard(t, "--pod-volume-root=/data=pvc:datasets", "--pod-datasets-dir=/data/sets")
	dir := filepath.Join(y.dir, "claim")
	y.must(os.Mkdir(dir, 0o777))
	volume := "datasets-" + y.namespace
	y.apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": %q}, "spec": {
		"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "", "hostPath": {"path": %q}, "claimRef": {"namespace": %q, "name": "datasets"}}}`,
		volume, dir, y.namespace))
	t.Cleanup(func() {
		_, _ = y.cluster.Kubectl(context.Background(), "delete", "persistentvolume", volume, "--wait=false")
	})
	y.apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "datasets"}, "spec": {
		"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": %q}}`, volume))
	y.submit("reads", 2, 1, func(s *train.Spec) { s.Env["TRAIN_LEDGER"] = "/data/ledger" })
	y.plan(on("reads", "gpu:0"))
	y.state("reads", train.StateSucceeded)
	if _, err := os.Stat(filepath.Join(dir, "sets", "ledger")); err != nil {
		t.Errorf("nothing was written through /data: %v", err)
	}
	y.nothingLeft()
}
