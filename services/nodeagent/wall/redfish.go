package wall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

const redfishRoot = "/redfish/v1/Chassis"

// Redfish reads the power of a node from the service of its board: EnvironmentMetrics where the chassis has them, else the older Power resource.
type Redfish struct {
	url            string
	user, password string
	client         *http.Client
	// found is the resource that told, once one did.
	found string
}

// NewRedfish makes a gauge by the service's address (https://bmc), or by that of a chassis (https://bmc/redfish/v1/Chassis/1) where there are several.
func NewRedfish(url, user, password string, client *http.Client) *Redfish {
	return &Redfish{url: strings.TrimSuffix(url, "/"), user: user, password: password, client: client}
}

// redfishLink is a reference to another resource.
type redfishLink struct {
	ID string `json:"@odata.id"`
}

// redfishResource is what matters of all resources on the way: a collection of chassis, a chassis, EnvironmentMetrics, Power.
type redfishResource struct {
	Members            []redfishLink `json:"Members"`
	EnvironmentMetrics redfishLink   `json:"EnvironmentMetrics"`
	PowerLink          redfishLink   `json:"Power"`
	PowerWatts         struct {
		Reading *float64 `json:"Reading"`
	} `json:"PowerWatts"`
	PowerControl []struct {
		PowerConsumedWatts *float64 `json:"PowerConsumedWatts"`
	} `json:"PowerControl"`
}

// power is what a resource tells of it. Of several controls the first one is that of the whole; the others are parts of it.
func (r redfishResource) power() (float64, bool) {
	if r.PowerWatts.Reading != nil {
		return *r.PowerWatts.Reading, true
	}
	for _, c := range r.PowerControl {
		if c.PowerConsumedWatts != nil {
			return *c.PowerConsumedWatts, true
		}
	}
	return 0, false
}

// Power asks the resource that told the last time, or looks for one.
func (r *Redfish) Power(ctx context.Context) (unit.Power, error) {
	if r.found == "" {
		found, err := r.find(ctx)
		if err != nil {
			return 0, err
		}
		r.found = found
	}
	resource, err := r.resource(ctx, r.found)
	if err != nil {
		return 0, err
	}
	reading, told := resource.power()
	if !told {
		from := r.found
		r.found = ""
		return 0, fmt.Errorf("read %s: it tells no power any more", from)
	}
	return watts(reading)
}

// find gives the path of the first resource that tells power.
func (r *Redfish) find(ctx context.Context) (string, error) {
	chassis := []redfishLink{{""}}
	if !strings.Contains(r.url, redfishRoot+"/") {
		collection, err := r.resource(ctx, redfishRoot)
		if err != nil {
			return "", err
		}
		chassis = collection.Members
	}
	var troubles []error
	for _, c := range chassis {
		resource, err := r.resource(ctx, c.ID)
		if err != nil {
			troubles = append(troubles, err)
			continue
		}
		for _, link := range []redfishLink{resource.EnvironmentMetrics, resource.PowerLink} {
			if link.ID == "" {
				continue
			}
			metrics, err := r.resource(ctx, link.ID)
			if _, told := metrics.power(); told {
				return link.ID, nil
			}
			troubles = append(troubles, err)
		}
	}
	return "", errors.Join(append(troubles, fmt.Errorf("look for power at %s: no chassis tells it", redacted(r.url)))...)
}

// resource reads one by its path; the empty path is the address that was given.
func (r *Redfish) resource(ctx context.Context, path string) (redfishResource, error) {
	address := r.url
	if path != "" {
		host, _, _ := strings.Cut(r.url, redfishRoot)
		address = host + path
	}
	var resource redfishResource
	body, err := get(ctx, r.client, address, r.user, r.password)
	if err != nil {
		return resource, err
	}
	if err := json.Unmarshal(body, &resource); err != nil {
		return resource, fmt.Errorf("read %s: %w", redacted(address), err)
	}
	return resource, nil
}
