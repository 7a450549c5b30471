package dra

import (
	"cmp"
	"context"
	"slices"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/kubernetes"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
	"github.com/switchyard-dl/switchyard/services/nodeagent/inventory"
)

// Offers are the devices of a node that DRA drivers offer, according to their ResourceSlices.
type Offers struct {
	class   string
	watched cache.SharedIndexInformer
	slices  resourcelisters.ResourceSliceLister

	mu sync.Mutex
	// known are the GPUs of the driver with the name of the class that were ever offered: a GPU keeps its place.
	known []gpu.Device
}

// Follow follows the offers on a node, for pods that claim GPUs by a class.
func Follow(client kubernetes.Interface, node, class string) *Offers {
	ofNode := fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorNodeName, node).String()
	watched := resourceinformers.NewFilteredResourceSliceInformer(client, 0, cache.Indexers{}, func(o *metav1.ListOptions) { o.FieldSelector = ofNode })
	return &Offers{class: class, watched: watched, slices: resourcelisters.NewResourceSliceLister(watched.GetIndexer())}
}

// Run follows until ctx ends.
func (o *Offers) Run(ctx context.Context) error {
	o.watched.RunWithContext(ctx)
	return nil
}

// offer is a device that has a UUID.
type offer struct {
	driver, pool string
	device       resourcev1.Device
	uuid         string
}

// list returns what is offered, by the newest slices of each pool, in the order of devices' names.
func (o *Offers) list() []offer {
	all, err := o.slices.List(labels.Everything())
	if err != nil {
		return nil // a cache has no errors
	}
	type pool struct{ driver, name string }
	newest := map[pool]int64{}
	for _, s := range all {
		p := pool{s.Spec.Driver, s.Spec.Pool.Name}
		newest[p] = max(newest[p], s.Spec.Pool.Generation)
	}
	var offers []offer
	for _, s := range all {
		if s.Spec.Pool.Generation < newest[pool{s.Spec.Driver, s.Spec.Pool.Name}] {
			continue
		}
		for _, d := range s.Spec.Devices {
			if uuid := d.Attributes[attributeUUID].StringValue; uuid != nil {
				offers = append(offers, offer{s.Spec.Driver, s.Spec.Pool.Name, d, *uuid})
			}
		}
	}
	slices.SortFunc(offers, func(x, y offer) int {
		return cmp.Or(cmp.Compare(x.driver, y.driver), cmp.Compare(len(x.device.Name), len(y.device.Name)), cmp.Compare(x.device.Name, y.device.Name))
	})
	return offers
}

// UUID returns the UUID of a device, empty if it is not offered or has none.
func (o *Offers) UUID(driver, pool, device string) string {
	for _, f := range o.list() {
		if f.driver == driver && f.pool == pool && f.device.Name == device {
			return f.uuid
		}
	}
	return ""
}

// of returns the offer of a GPU.
func (o *Offers) of(g gpu.Device) (offer, bool) {
	all := o.list()
	i := slices.IndexFunc(all, func(f offer) bool { return f.uuid == g.UUID })
	if i < 0 {
		return offer{}, false
	}
	return all[i], true
}

// Access returns how pods get a GPU. They share it if its driver allows more than one claim for it.
func (o *Offers) Access(g gpu.Device) inventory.Access {
	f, found := o.of(g)
	shared := f.device.AllowMultipleAllocations
	return inventory.Access{Class: o.class, Whole: found && g.Instance == 0 && (shared == nil || !*shared)}
}

// Given returns a reader of the GPUs of r in which those that no driver offers are in trouble. Without r it lists the
// GPUs as their driver describes them: that driver has the same name as the class.
func (o *Offers) Given(r gpu.Reader) gpu.Reader {
	if r == nil {
		r = described{o}
	}
	return given{r, o}
}

type given struct {
	gpu.Reader
	offers *Offers
}

// Devices lists the GPUs.
func (g given) Devices() ([]gpu.Device, error) {
	devices, err := g.Reader.Devices()
	for i := range devices {
		if _, found := g.offers.of(devices[i]); !found && devices[i].Trouble == "" {
			devices[i].Trouble = "no driver offers it for claims of " + g.offers.class
		}
	}
	return devices, err
}

// described reads GPUs from slices.
type described struct{ offers *Offers }

// Devices lists the GPUs that were ever offered.
func (d described) Devices() ([]gpu.Device, error) {
	o := d.offers
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.list() {
		kind := f.device.Attributes[attributeType].StringValue
		known := slices.ContainsFunc(o.known, func(g gpu.Device) bool { return g.UUID == f.uuid })
		if known || f.driver != o.class || kind != nil && *kind != typeGPU {
			continue
		}
		memory := f.device.Capacity[capacityMemory].Value
		g := gpu.Device{Index: len(o.known), UUID: f.uuid, Memory: unit.Bytes(memory.Value())}
		if model := f.device.Attributes[attributeModel].StringValue; model != nil {
			g.Model = *model
		}
		o.known = append(o.known, g)
	}
	return slices.Clone(o.known), nil
}

// Sample reads nothing.
func (d described) Sample(int) (gpu.Sample, error) { return gpu.Sample{}, nil }
