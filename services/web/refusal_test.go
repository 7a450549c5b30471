package web

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/rpc"
)

// A refusal of another service is the caller's mistake or that service's trouble, and the status says which.
func TestARefusalOfAServiceHasItsStatus(t *testing.T) {
	for err, want := range map[error]int{
		rpc.Missing("job a has ended"):             http.StatusNotFound,
		rpc.Invalid("17 variants"):                 http.StatusUnprocessableEntity,
		errors.New("the disk is broken"):           http.StatusBadGateway,
		fmt.Errorf("ask planner: %w", bus.ErrAway): http.StatusServiceUnavailable,
	} {
		if p, _ := errors.AsType[problemError](asked(err)); p.Status != want || p.Detail != err.Error() {
			t.Errorf("%v is answered as %+v, want the status %d", err, p, want)
		}
	}
}
