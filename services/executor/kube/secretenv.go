package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// The annotations of a Secret that say to whose jobs it may be given. Many jobs run in one namespace, so its name
// alone is no permission.
const (
	annotationUser   = prefix + "user"
	annotationTenant = prefix + "tenant"
)

// Secrets checks that the Secrets of a job are there and may be given to it. The kubelet reads their values.
func (b *Backend) Secrets(ctx context.Context, spec train.Spec) (map[string]string, error) {
	namespace := b.Namespace(spec)
	for _, name := range slices.Sorted(maps.Keys(spec.SecretEnv)) {
		source, err := train.ParseSecret(spec.SecretEnv[name])
		if err != nil || source.Kind != train.SecretObject {
			return nil, fmt.Errorf("%w secret_env.%s: the job runs as pods: want secret:NAME/KEY, found %.80q", launch.ErrSecret, name, spec.SecretEnv[name])
		}
		found, err := b.client.CoreV1().Secrets(namespace).Get(ctx, source.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read secret_env.%s: %w", name, err)
		}
		if err != nil || !givenTo(found, spec) {
			// One answer for both: a person who may not have a Secret need not learn that it exists.
			return nil, fmt.Errorf("%w secret_env.%s: the namespace %s has no Secret %s with the annotation %s: %s or %s: %s", launch.ErrSecret, name,
				namespace, source.Name, annotationUser, spec.User, annotationTenant, spec.Tenant)
		}
		if _, has := found.Data[source.Key]; !has {
			return nil, fmt.Errorf("%w secret_env.%s: the Secret %s has no key %s", launch.ErrSecret, name, source.Name, source.Key)
		}
	}
	return nil, nil //nolint:nilnil // no values: pods refer to them
}

func givenTo(s *corev1.Secret, spec train.Spec) bool {
	user, tenant := s.Annotations[annotationUser], s.Annotations[annotationTenant]
	return user != "" && user == spec.User || tenant != "" && tenant == spec.Tenant
}

// secretVariables refer to the Secrets of the job.
func (t podTemplate) secretVariables() []corev1.EnvVar {
	var env []corev1.EnvVar
	for _, name := range slices.Sorted(maps.Keys(t.Spec.SecretEnv)) {
		if source, err := train.ParseSecret(t.Spec.SecretEnv[name]); err == nil {
			env = append(env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: source.Name}, Key: source.Key,
			}}})
		}
	}
	return env
}
