package kubebus

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/kubetoken"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Kubernetes asks the API server which nodes there are, and whose the tokens for the bus are.
type Kubernetes struct {
	nodes  metadata.Getter
	tokens *kubetoken.Reviewer
}

// Connect returns the API server of KUBECONFIG, else of the cluster in which this process is a pod.
func Connect() (Kubernetes, error) {
	config, err := kubetoken.Cluster("switchyard-bus")
	if err != nil {
		return Kubernetes{}, err
	}
	nodes, err := metadata.NewForConfig(config)
	if err != nil {
		return Kubernetes{}, fmt.Errorf("make the client of Kubernetes: %w", err)
	}
	tokens, err := kubetoken.Connect(config, identity.TokenAudience, time.Now)
	if err != nil {
		return Kubernetes{}, err
	}
	return Kubernetes{nodes.Resource(corev1.SchemeGroupVersion.WithResource("nodes")), tokens}, nil
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
