// Package kubetoken finds out from Kubernetes whose token a person or a pod shows. It decides nothing about what they
// may do.
package kubetoken

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/switchyard-dl/switchyard/libs/access"
)

// Bounds of what the API server is asked.
const (
	// reviewTime bounds one question.
	reviewTime = 5 * time.Second
	// acceptedFor and refusedFor are how long an answer counts: a token that was withdrawn is good for as long.
	acceptedFor = time.Minute
	refusedFor  = 10 * time.Second
	// mostKnown bounds the answers that are remembered.
	mostKnown = 4096
	// questionsPerSecond is the most that strangers with made-up tokens can have the API server do.
	questionsPerSecond = 20
)

// ErrRefused means that Kubernetes does not vouch for a token, or for whom has no name here.
var ErrRefused = errors.New("refused")

// Reviewer asks the API server whose a token is, and remembers the answer for a short while.
type Reviewer struct {
	reviews  client.TokenReviewInterface
	audience string
	now      func() time.Time

	mu    sync.Mutex
	known map[[sha256.Size]byte]answer
}

// User is who shows a token, as Kubernetes calls him. Node and Pod are those to which the token is bound, if it is.
type User struct{ Name, Node, Pod string }

type answer struct {
	user  User
	err   error
	until time.Time
}

// Connect makes a reviewer of tokens for an audience, which asks the API server of a cluster.
func Connect(config *rest.Config, audience string, now func() time.Time) (*Reviewer, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = questionsPerSecond, questionsPerSecond
	c, err := client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of Kubernetes: %w", err)
	}
	return New(c.TokenReviews(), audience, now), nil
}

// Cluster returns how a program reaches the API server of KUBECONFIG, else that of the cluster in which it is a pod.
func Cluster(program string) (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reach the API server of Kubernetes: %w", err)
	}
	config.UserAgent = program
	return config, nil
}

// New makes a reviewer of tokens for an audience.
func New(reviews client.TokenReviewInterface, audience string, now func() time.Time) *Reviewer {
	return &Reviewer{reviews: reviews, audience: audience, now: now, known: map[[sha256.Size]byte]answer{}}
}

// Who returns the name here of the person or pod that shows a token. The error is as that of User.
func (r *Reviewer) Who(ctx context.Context, token string) (string, error) {
	u, err := r.User(ctx, token)
	if err != nil {
		return "", err
	}
	return nameOf(u.Name)
}

// User returns who shows a token. The error is ErrRefused if the token says nothing; with any other one the API server
// has not answered.
func (r *Reviewer) User(ctx context.Context, token string) (User, error) {
	key := sha256.Sum256([]byte(token))
	r.mu.Lock()
	a, known := r.known[key]
	r.mu.Unlock()
	if known && r.now().Before(a.until) {
		return a.user, a.err
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{r.audience}}}
	done, err := r.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return User{}, fmt.Errorf("ask Kubernetes whose a token is: %w", err)
	}
	user, err := r.judge(done.Status)
	r.keep(key, user, err)
	return user, err
}

func (r *Reviewer) keep(key [sha256.Size]byte, user User, err error) {
	now := r.now()
	a := answer{user, err, now.Add(acceptedFor)}
	if err != nil {
		a.until = now.Add(refusedFor)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= mostKnown {
		maps.DeleteFunc(r.known, func(_ [sha256.Size]byte, a answer) bool { return !now.Before(a.until) })
	}
	if len(r.known) >= mostKnown {
		clear(r.known)
	}
	r.known[key] = a
}

// The keys of what the API server knows about the pod to which a token is bound.
const (
	extraNode = "authentication.kubernetes.io/node-name"
	extraPod  = "authentication.kubernetes.io/pod-name"
)

// judge returns whom the answer of the API server names.
func (r *Reviewer) judge(s authenticationv1.TokenReviewStatus) (User, error) {
	switch {
	case !s.Authenticated:
		return User{}, fmt.Errorf("%w: Kubernetes does not know the token: it may have expired, or be for another audience than %s", ErrRefused, r.audience)
	case !slices.Contains(s.Audiences, r.audience):
		return User{}, fmt.Errorf("%w: the token is not for the audience %s", ErrRefused, r.audience)
	}
	bound := func(key string) string {
		if values := s.User.Extra[key]; len(values) == 1 {
			return values[0]
		}
		return ""
	}
	return User{Name: s.User.Username, Node: bound(extraNode), Pod: bound(extraPod)}, nil
}

// accounts begins the names of service accounts in Kubernetes.
const accounts = "system:serviceaccount:"

// AccountName returns the name here of a service account.
func AccountName(namespace, account string) (string, error) {
	return nameOf(accounts + namespace + ":" + account)
}

// nameOf returns the name here of a user of Kubernetes. A service account is NAMESPACE.NAME, so nobody else has a name
// with a dot.
func nameOf(user string) (string, error) {
	name := user
	account, is := strings.CutPrefix(user, accounts)
	if is {
		name = strings.Replace(account, ":", ".", 1)
	}
	if _, err := access.Key(name); err != nil || !is && strings.Contains(name, ".") {
		return "", fmt.Errorf("%w: Kubernetes calls who shows the token %q, which is no name here: want 1 to 63 letters, digits, '_' or '-', or a service account", ErrRefused, user)
	}
	return name, nil
}
