package kube

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

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

// keySecret holds the key from which the capabilities of jobs are derived. Without it jobs would lose their names in the snapshots folders.
const keySecret = "switchyard-executor-key"

const keyField = "key"

// readKey reads the key, or makes it once.
func (b *Backend) readKey(ctx context.Context) ([]byte, error) {
	secrets := b.client.CoreV1().Secrets(b.options.Namespace)
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
		return nil, fmt.Errorf("read Secret %s/%s: %w", b.options.Namespace, keySecret, err)
	}
	if len(found.Data[keyField]) == 0 {
		return nil, fmt.Errorf("read Secret %s/%s: %w", b.options.Namespace, keySecret, errNoKey)
	}
	return found.Data[keyField], nil
}

var errNoKey = fmt.Errorf("no field %q", keyField)

// capability is the job's unguessable name, the same for all its attempts.
func (b *Backend) capability(job train.JobID) string {
	b.mu.Lock()
	data := b.keyData
	b.mu.Unlock()
	mac := hmac.New(sha256.New, data)
	_, _ = mac.Write([]byte("capability/" + string(job)))
	return hex.EncodeToString(mac.Sum(nil))
}

// MakeSecrets makes the Secret of an attempt that is about to be claimed, or reads the one that an executor before this one has made.
func (b *Backend) MakeSecrets(ctx context.Context, job train.JobID, number int) (capability, token string, err error) {
	if err := b.Ready(); err != nil {
		return "", "", err
	}
	k := key{job, number}
	token, err = launch.NewSecret()
	if err != nil {
		return "", "", err
	}
	immutable := true
	wanted := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: k.base(), Labels: k.labels(0), Annotations: map[string]string{annotationJob: string(job)}}, Immutable: &immutable,
		Data: map[string][]byte{secretCapability: []byte(b.capability(job)), secretToken: []byte(token)},
	}
	delete(wanted.Labels, labelGeneration)
	made, err := b.client.CoreV1().Secrets(b.options.Namespace).Create(ctx, wanted, metav1.CreateOptions{FieldManager: manager})
	if apierrors.IsAlreadyExists(err) {
		return b.ReadSecrets(ctx, job, number)
	}
	if err != nil {
		return "", "", fmt.Errorf("make Secret %s: %w", k.base(), err)
	}
	return b.keepSecret(k, made)
}

// ReadSecrets reads the Secret of an attempt; nothing is made for an attempt that was claimed.
func (b *Backend) ReadSecrets(ctx context.Context, job train.JobID, number int) (capability, token string, err error) {
	k := key{job, number}
	b.mu.Lock()
	s, known := b.secrets[k]
	b.mu.Unlock()
	if known {
		return s.capability, s.token, nil
	}
	found, err := b.client.CoreV1().Secrets(b.options.Namespace).Get(ctx, k.base(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("read Secret %s: %w", k.base(), err)
	}
	return b.keepSecret(k, found)
}

func (b *Backend) keepSecret(k key, o *corev1.Secret) (capability, token string, err error) {
	s := secret{string(o.Data[secretCapability]), string(o.Data[secretToken]), o.UID}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.secrets[k] = s
	return s.capability, s.token, nil
}

// owner is the Secret of an attempt as the owner of what is made for it.
func (b *Backend) owner(k key) metav1.OwnerReference {
	b.mu.Lock()
	defer b.mu.Unlock()
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: k.base(), UID: b.secrets[k].uid}
}
