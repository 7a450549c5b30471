package kubebus

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// User is who shows a token. Node and Pod are those to which the token is bound, if it is.
type User struct{ Name, Node, Pod string }

// Kubernetes asks the API server.
type Kubernetes struct {
	nodes   metadata.Getter
	reviews authentication.TokenReviewInterface
}

// Connect returns the API server of KUBECONFIG, else of the cluster in which this process is a pod.
func Connect() (Kubernetes, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return Kubernetes{}, fmt.Errorf("reach the API server of Kubernetes: %w", err)
	}
	config.UserAgent = "switchyard-bus"
	nodes, err := metadata.NewForConfig(config)
	if err != nil {
		return Kubernetes{}, fmt.Errorf("make the client of Kubernetes: %w", err)
	}
	reviews, err := authentication.NewForConfig(config)
	if err != nil {
		return Kubernetes{}, fmt.Errorf("make the client of Kubernetes: %w", err)
	}
	return Kubernetes{nodes.Resource(corev1.SchemeGroupVersion.WithResource("nodes")), reviews.TokenReviews()}, nil
}

// Nodes returns the ids of the cluster's nodes.
func (k Kubernetes) Nodes(ctx context.Context) ([]string, error) {
	list, err := k.nodes.List(ctx, metav1.ListOptions{ResourceVersion: "0"}) // as the API server has it in memory
	if err != nil {
		return nil, fmt.Errorf("list the nodes of the cluster: %w", err)
	}
	ids := make([]string, len(list.Items))
	for i := range list.Items {
		ids[i] = string(train.KubernetesNodeID(list.Items[i].Name))
	}
	return ids, nil
}

// The keys of what the API server knows about the pod to which a token is bound.
const (
	extraNode = "authentication.kubernetes.io/node-name"
	extraPod  = "authentication.kubernetes.io/pod-name"
)

// Review asks whose a token is. The error is errRefused if the token is not for the bus.
func (k Kubernetes) Review(ctx context.Context, token string) (User, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{identity.TokenAudience}}}
	done, err := k.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return User{}, fmt.Errorf("ask Kubernetes whose a token is: %w", err)
	}
	s := done.Status
	if !s.Authenticated || !slices.Contains(s.Audiences, identity.TokenAudience) {
		return User{}, fmt.Errorf("%w: Kubernetes does not know the token for the audience %s", errRefused, identity.TokenAudience)
	}
	u := User{Name: s.User.Username}
	if node := s.User.Extra[extraNode]; len(node) == 1 {
		u.Node = node[0]
	}
	if pod := s.User.Extra[extraPod]; len(pod) == 1 {
		u.Pod = pod[0]
	}
	return u, nil
}
