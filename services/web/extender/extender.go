// Package extender speaks to schedulers of Kubernetes as one of their extenders: it makes a request to the planner of
// each question about a pod that asks for memory of any GPU, and an answer for the scheduler of what the planner says.
// It decides nothing.
//
// Only the verb filter is there. It leaves one node, the one on which the planner has booked memory, so there is
// nothing to prioritize, and the scheduler binds the pod itself: no right on pods is needed here.
package extender

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Args is what a scheduler asks. NodeNames are set by one whose configuration says nodeCacheCapable, Nodes by others.
type Args struct {
	Pod       *corev1.Pod
	Nodes     *corev1.NodeList
	NodeNames *[]string
}

// Result is the answer.
type Result struct {
	Nodes     *corev1.NodeList `json:",omitempty"`
	NodeNames *[]string        `json:",omitempty"`
	// FailedAndUnresolvableNodes says why not on a node, although pods of lower priority were evicted there.
	FailedAndUnresolvableNodes map[string]string `json:",omitempty"`
	// Error has the scheduler ask again after 10 seconds at most.
	Error string `json:",omitempty"`
}

// mostBytes bounds a question. One of a scheduler that sends whole nodes is large.
const mostBytes = 64 << 20

// Ask asks the planner.
type Ask func(context.Context, rpc.PodRequest) (rpc.PodAnswer, error)

// Handler answers POST /SECRET/filter.
func Handler(secret string, ask Ask) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		word, verb, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if secret == "" || subtle.ConstantTimeCompare([]byte(word), []byte(secret)) != 1 || verb != "filter" || r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		var args Args
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBytes)).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(filter(r.Context(), args, ask)) // a scheduler that has gone asks again
	})
}

// filter answers one question.
func filter(ctx context.Context, args Args, ask Ask) Result {
	request, names, err := requestOf(args)
	if err != nil {
		return args.refuse(names, err.Error())
	}
	answer, err := ask(ctx, request)
	switch {
	case err != nil:
		return Result{Error: "Switchyard: " + err.Error()}
	case answer.Node == "":
		return Result{Error: "Switchyard: the pod waits: " + answer.Reason.Message}
	}
	for _, name := range names {
		if train.KubernetesNodeID(name) == answer.Node {
			return args.only(name)
		}
	}
	return Result{Error: fmt.Sprintf("Switchyard: memory is booked on node %s, where the scheduler would not start the pod", answer.Node)}
}

// names of the nodes on which the scheduler would start the pod.
func (a Args) names() (names []string) {
	if a.NodeNames != nil {
		return *a.NodeNames
	}
	if a.Nodes != nil {
		for i := range a.Nodes.Items {
			names = append(names, a.Nodes.Items[i].Name)
		}
	}
	return names
}

// only is the answer that leaves one node.
func (a Args) only(name string) Result {
	if a.Nodes == nil {
		return Result{NodeNames: &[]string{name}}
	}
	one := &corev1.NodeList{}
	for i := range a.Nodes.Items {
		if a.Nodes.Items[i].Name == name {
			one.Items = append(one.Items, a.Nodes.Items[i])
		}
	}
	return Result{Nodes: one}
}

// refuse is the answer that leaves none: to ask again is of no use.
func (a Args) refuse(names []string, why string) Result {
	result := Result{FailedAndUnresolvableNodes: map[string]string{}, NodeNames: &[]string{}}
	if a.Nodes != nil {
		result.Nodes, result.NodeNames = &corev1.NodeList{}, nil
	}
	for _, name := range names {
		result.FailedAndUnresolvableNodes[name] = why
	}
	return result
}

// requestOf makes a request of a question.
func requestOf(args Args) (r rpc.PodRequest, names []string, err error) {
	names = args.names()
	if args.Pod == nil {
		return r, names, errors.New("the question names no pod")
	}
	p := args.Pod
	r.Pod = train.PlainPod{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, CreatedAt: p.CreationTimestamp.Time}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		asked, asks := c.Resources.Limits[train.PodMemoryResource]
		if !asks {
			continue
		}
		if r.Pod.Memory > 0 {
			return r, names, fmt.Errorf("several containers ask for %s: one of a pod may", train.PodMemoryResource)
		}
		r.Pod.Memory, r.Pod.Image, r.Pod.Command = unit.Bytes(asked.Value())*unit.GiB, c.Image, append(c.Command, c.Args...)
	}
	if r.Pod.Memory <= 0 {
		return r, names, fmt.Errorf("no container asks for %s", train.PodMemoryResource)
	}
	for _, name := range names {
		r.Nodes = append(r.Nodes, train.KubernetesNodeID(name))
	}
	return r, names, nil
}
