package kube

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// secret is what an attempt's Secret holds, and the object itself as an owner.
type secret struct {
	capability, token string
	uid               types.UID
}

// secretStore makes and reads the Secrets of attempts.
type secretStore struct {
	*cluster

	mu      sync.Mutex
	keyData []byte
	secrets map[key]secret
}

func (s *secretStore) useKey(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keyData = data
}

// keySecret holds the key from which the capabilities of jobs are derived. Without it, jobs would lose their names in
// the snapshots folders.
const keySecret = "switchyard-executor-key"

const keyField = "key"

// readKey reads the key, or makes it once.
func (s *secretStore) readKey(ctx context.Context) ([]byte, error) {
	secrets := s.client.CoreV1().Secrets(s.options.Namespace)
	found, err := secrets.Get(ctx, keySecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		value, drawErr := launch.NewSecret()
		if drawErr != nil {
			return nil, drawErr
		}
		immutable := true
		found, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: keySecret, Labels: map[string]string{labelManaged: manager}}, Immutable: &immutable,
			Data: map[string][]byte{keyField: []byte(value)},
		}, metav1.CreateOptions{FieldManager: manager})
		if apierrors.IsAlreadyExists(err) {
			found, err = secrets.Get(ctx, keySecret, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", s.options.Namespace, keySecret, err)
	}
	if len(found.Data[keyField]) == 0 {
		return nil, fmt.Errorf("read Secret %s/%s: %w", s.options.Namespace, keySecret, errNoKey)
	}
	return found.Data[keyField], nil
}

var errNoKey = fmt.Errorf("no field %q", keyField)

// capability is the job's unguessable name, the same for all its attempts; it is unknown until the key is.
func (s *secretStore) capability(job train.JobID) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keyData == nil {
		return "", errNotReady
	}
	mac := hmac.New(sha256.New, s.keyData)
	_, _ = mac.Write([]byte("capability/" + string(job)))
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// Vacate does nothing: what jobs leave lies in volumes, which are the user's and the operator's to clear.
func (b *Backend) Vacate(train.JobID) error { return nil }

// FindSaved returns true: what jobs save lies in volumes, which are the user's and the operator's to clear.
func (b *Backend) FindSaved(train.Job, train.Attempt) (bool, error) { return true, nil }

// MakeSecrets makes the Secret of an attempt that is about to be claimed, or reads the one that an earlier executor
// made. A Secret is not immutable: kubelets keep those that are, and would start containers with one that is gone.
func (s *secretStore) MakeSecrets(ctx context.Context, a train.Attempt) (capability, token string, err error) {
	if capability, err = s.capability(a.Job); err != nil {
		return "", "", err
	}
	if token, err = launch.NewSecret(); err != nil {
		return "", "", err
	}
	k := s.keyOf(a)
	wanted := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: k.base(), Labels: k.labels(0), Annotations: map[string]string{annotationJob: string(a.Job)}},
		Data:       map[string][]byte{secretCapability: []byte(capability), secretToken: []byte(token), secretMark: []byte(train.Mark(a.Job, a.Number, token))},
	}
	delete(wanted.Labels, labelGeneration)
	made, err := s.client.CoreV1().Secrets(k.namespace).Create(ctx, wanted, metav1.CreateOptions{FieldManager: manager})
	if apierrors.IsAlreadyExists(err) {
		found, readErr := s.readSecret(ctx, k)
		if readErr != nil || found.token != "" {
			return found.capability, found.token, readErr
		}
		err = errForeign
	}
	if err != nil {
		return capability, token, secretFailure(fmt.Errorf("make Secret %s: %w", k.base(), err))
	}
	s.keepSecret(k, made)
	return capability, token, nil
}

// secretFailure is a launch.RefusedError unless the next try may make the Secret.
func secretFailure(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || errors.Is(err, errForeign) {
		return &launch.RefusedError{Exit: train.Exit{Lost: true, Unstarted: true, Reason: creationFailure(err)}}
	}
	return err
}

// ReadSecrets reads the Secret of an attempt. It never makes one, because the attempt is claimed already.
func (s *secretStore) ReadSecrets(ctx context.Context, a train.Attempt) (capability, token string, err error) {
	found, err := s.readSecret(ctx, s.keyOf(a))
	return found.capability, found.token, err
}

// readSecret returns the Secret that was made for an attempt. It is empty if there is none, or only one of that name
// that another client made.
func (s *secretStore) readSecret(ctx context.Context, k key) (secret, error) {
	s.mu.Lock()
	found, known := s.secrets[k]
	s.mu.Unlock()
	if known {
		return found, nil
	}
	o, err := s.client.CoreV1().Secrets(k.namespace).Get(ctx, k.base(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !(k.has(o) && isMarked(k, o)) {
		return secret{}, nil
	}
	if err != nil {
		return secret{}, fmt.Errorf("read Secret %s: %w", k.base(), err)
	}
	return s.keepSecret(k, o), nil
}

func isMarked(k key, o *corev1.Secret) bool {
	return string(o.Data[secretMark]) == train.Mark(k.job, k.number, string(o.Data[secretToken]))
}

func (s *secretStore) keepSecret(k key, o *corev1.Secret) secret {
	made := secret{string(o.Data[secretCapability]), string(o.Data[secretToken]), o.UID}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets[k] = made
	return made
}

// deleteSecret deletes the Secret that was made for an attempt, and the Services that it owns.
func (s *secretStore) deleteSecret(ctx context.Context, k key) error {
	found, err := s.readSecret(ctx, k)
	if err != nil || found.token == "" {
		return err
	}
	background := metav1.DeletePropagationBackground
	err = s.client.CoreV1().Secrets(k.namespace).Delete(ctx, k.base(), metav1.DeleteOptions{
		PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &found.uid},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete Secret %s: %w", k.base(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.secrets, k)
	return nil
}

// owner is the Secret of an attempt as the owner of its other objects.
func (s *secretStore) owner(k key) metav1.OwnerReference {
	s.mu.Lock()
	defer s.mu.Unlock()
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: k.base(), UID: s.secrets[k].uid}
}
