package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

// whatIf asks the planner what would become of a job, and of the others, if the job were different.
func (s server) whatIf(route api.Route, r *http.Request) (answer, error) {
	values := r.URL.Query()
	q, err := route.Decode(values)
	if err != nil {
		return answer{}, err
	}
	variants, err := variantsOf(values)
	if err != nil {
		return answer{}, err
	}
	var id train.JobID
	if _, err := s.find(r, q.User, func(_ *index.Index, job train.Job) { id = job.ID }); err != nil {
		return answer{}, err
	}
	if err := s.mayToJob(r, access.AskWhatIf, id); err != nil {
		return answer{}, err
	}
	if _, err := s.callerInTime(r); err != nil {
		return answer{}, err
	}
	reply, err := askService[rpc.OutlookRequest, rpc.OutlookAnswer](r.Context(), s, rpc.OutlookSubject, rpc.OutlookRequest{Job: id, Variants: variants})
	return answer{body: reply}, err
}

// policies asks the planner what the next plan would be by other policies.
func (s server) policies(route api.Route, r *http.Request) (answer, error) {
	values := r.URL.Query()
	var variants []rpc.Variant
	for word := range strings.SplitSeq(values.Get("policies"), ",") {
		if word != "" {
			variants = append(variants, rpc.Variant{Policy: word})
		}
	}
	if err := s.may(r, access.AskWhatIf, access.Owner{}); err != nil {
		return answer{}, err
	}
	if _, err := s.callerInTime(r); err != nil {
		return answer{}, err
	}
	reply, err := askService[rpc.OutlookRequest, rpc.OutlookAnswer](r.Context(), s, rpc.OutlookSubject, rpc.OutlookRequest{Variants: variants})
	return answer{body: reply}, err
}

// variantsOf reads one variant for each number of devices, one for the priority, and one for sharing.
func variantsOf(values url.Values) ([]rpc.Variant, error) {
	var variants []rpc.Variant
	if given := values.Get("devices"); given != "" {
		for word := range strings.SplitSeq(given, ",") {
			n, err := strconv.Atoi(word)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("devices: want whole numbers from 1, joined by commas, found %q", given)
			}
			variants = append(variants, rpc.Variant{Devices: n})
		}
	}
	if given := values.Get("priority"); given != "" {
		n, err := strconv.Atoi(given)
		if err != nil || n < 0 || n > 100 {
			return nil, fmt.Errorf("priority: want a number from 0 to 100, found %q", given)
		}
		variants = append(variants, rpc.Variant{Priority: &n})
	}
	switch given := values.Get("share"); given {
	case "", "false":
	case "true":
		variants = append(variants, rpc.Variant{Share: true})
	default:
		return nil, fmt.Errorf("share: want true or false, found %q", given)
	}
	return variants, nil
}
