package deviceplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Holders finds out from the kubelet which devices the pods of others hold, whichever plugin gave them: the units of
// this agent's resources, or the same GPU as NVIDIA's plugin knows it. One goroutine uses it.
type Holders struct {
	// Socket is where the kubelet answers.
	Socket string
	// Namespaces are those of jobs' pods, which do not count.
	Namespaces []string
	// OnChange is called with an error when it changes; nil is its end.
	OnChange func(error)

	// pods has the newest answer: the holder by resource, and by the id of a device.
	pods      map[string]string
	lastError string
}

// listTimeout bounds one question.
const listTimeout = 2 * time.Second

// Mark enters the holders of devices. While the kubelet does not answer, its last answer counts.
func (h *Holders) Mark(ctx context.Context, devices []train.Device) {
	pods, err := h.list(ctx)
	text := ""
	if err != nil {
		text = err.Error()
	} else {
		h.pods = pods
	}
	if text != h.lastError {
		h.lastError = text
		h.OnChange(err)
	}
	for i := range devices {
		d := &devices[i]
		for _, name := range []string{d.Resource, d.UUID} {
			if pod := h.pods[name]; name != "" && pod != "" {
				d.HeldBy = pod
			}
		}
	}
}

func (h *Holders) list(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+h.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("reach the kubelet: %w", err)
	}
	defer func() { _ = connection.Close() }()
	answer, err := podresources.NewPodResourcesListerClient(connection).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the devices of pods: %w", err)
	}
	pods := map[string]string{}
	for _, p := range answer.GetPodResources() {
		if slices.Contains(h.Namespaces, p.GetNamespace()) {
			continue
		}
		holder := "pod " + p.GetNamespace() + "/" + p.GetName()
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				pods[d.GetResourceName()] = holder
				for _, id := range d.GetDeviceIds() {
					uuid, _, _ := strings.Cut(id, "::") // NVIDIA's plugin numbers the shares of a GPU
					pods[uuid] = holder
				}
			}
		}
	}
	return pods, nil
}
