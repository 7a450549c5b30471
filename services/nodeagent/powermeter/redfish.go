package powermeter

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

// Redfish reads the power of a node from the service of its management controller: EnvironmentMetrics if the chassis
// has them, else the older Power resource.
type Redfish struct {
	url            string
	user, password string
	client         *http.Client
	// found is the resource that reports power, once known.
	found string
}

// NewRedfish makes a gauge by the service's address (https://bmc), or by that of a chassis
// (https://bmc/redfish/v1/Chassis/1) if there are several.
func NewRedfish(url, user, password string, client *http.Client) *Redfish {
	return &Redfish{url: strings.TrimSuffix(url, "/"), user: user, password: password, client: client}
}

// redfishLink is a reference to another resource.
type redfishLink struct {
	ID string `json:"@odata.id"`
}

// redfishResource has the relevant fields of all resources on the way: a collection of chassis, a chassis,
// EnvironmentMetrics, Power.
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

// power returns the power that a resource reports. If there are several controls, the first is the total and the
// others are parts of it.
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

// Power reads the resource that reported the last time, or finds one.
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
	reading, found := resource.power()
	if !found {
		from := r.found
		r.found = ""
		return 0, fmt.Errorf("read %s: it no longer reports power", from)
	}
	return watts(reading)
}

// find returns the path of the first resource that reports power.
func (r *Redfish) find(ctx context.Context) (string, error) {
	chassis := []redfishLink{{""}}
	if !strings.Contains(r.url, redfishRoot+"/") {
		collection, err := r.resource(ctx, redfishRoot)
		if err != nil {
			return "", err
		}
		chassis = collection.Members
	}
	var errs []error
	for _, c := range chassis {
		resource, err := r.resource(ctx, c.ID)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, link := range []redfishLink{resource.EnvironmentMetrics, resource.PowerLink} {
			if link.ID == "" {
				continue
			}
			metrics, err := r.resource(ctx, link.ID)
			if _, found := metrics.power(); found {
				return link.ID, nil
			}
			errs = append(errs, err)
		}
	}
	return "", errors.Join(append(errs, fmt.Errorf("look for power at %s: no chassis reports it", redacted(r.url)))...)
}

// resource reads a resource by its path; the empty path is the given address.
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
