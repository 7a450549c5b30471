package kube

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// A Secret is given to jobs of those whom its annotations name. The executor's own is given to nobody.
func TestSecretsOfPods(t *testing.T) {
	object := func(name, namespace string, annotations map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Annotations: annotations}, Data: map[string][]byte{"key": []byte("xyzzy")}}
	}
	client := fake.NewClientset(object("anns", "jobs", map[string]string{annotationUser: "ann"}), object("teams", "jobs", map[string]string{annotationTenant: "vision"}), object(keySecret, "jobs", nil),
		object("own", "team-law", map[string]string{annotationTenant: "law"}))
	o := defaults()
	o.TenantNamespaces = map[string]string{"law": "team-law"}
	b := &Backend{cluster: &cluster{client: client, options: o}}
	get := func(user, tenant, source string) error {
		values, err := b.Secrets(t.Context(), train.Spec{User: user, Tenant: tenant, SecretEnv: map[string]string{"TOKEN": source}})
		if len(values) > 0 {
			t.Errorf("%s is read by the executor", source)
		}
		return err
	}
	for _, source := range []string{"secret:anns/key", "secret:teams/key"} {
		if err := get("ann", "vision", source); err != nil {
			t.Errorf("%s: %v", source, err)
		}
	}
	if err := get("zoe", "vision", "secret:teams/key"); err != nil {
		t.Errorf("of the tenant: %v", err)
	}
	for _, source := range []string{"secret:anns/key", "secret:teams/key", "secret:" + keySecret + "/key", "secret:none/key"} {
		if err := get("bob", "speech", source); !errors.Is(err, launch.ErrSecret) || !strings.Contains(err.Error(), "annotation") {
			t.Errorf("%s for another: %v", source, err)
		}
	}
	if err := get("eve", "law", "secret:own/key"); err != nil {
		t.Errorf("in the tenant's namespace: %v", err)
	}
	if err := get("ann", "law", "secret:anns/key"); !errors.Is(err, launch.ErrSecret) || !strings.Contains(err.Error(), "team-law") {
		t.Errorf("of ann, in another namespace than her job's: %v", err)
	}
	for _, source := range []string{"secret:anns/other", "file:/etc/passwd", "credential:x"} {
		if err := get("ann", "vision", source); !errors.Is(err, launch.ErrSecret) {
			t.Errorf("%s: %v", source, err)
		}
	}
	if err := get("", "", "secret:"+keySecret+"/key"); !errors.Is(err, launch.ErrSecret) {
		t.Errorf("a job of nobody: %v", err)
	}
}
