package profiler

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/profiler/linkhealth"
)

func TestAFailedChangeIsPublishedLater(t *testing.T) {
	of := func(link string, degraded, changed bool) linkhealth.Transition {
		return linkhealth.Transition{Link: train.Link{ID: link, Degraded: degraded}, Changed: changed}
	}
	var published []string
	down := "a"
	publish := func(t change) error {
		if t.Link.ID == down {
			return errors.New("the bus is away")
		}
		published = append(published, fmt.Sprintf("%s %v %v %d", t.Link.ID, t.Link.Degraded, t.Changed, t.slot))
		return nil
	}
	var left unpublished
	left = left.add([]linkhealth.Transition{of("a", true, true), of("b", true, true)}, 1).each(publish)
	left = left.add([]linkhealth.Transition{of("a", true, false)}, 2).each(publish)
	left = left.add([]linkhealth.Transition{of("a", true, false)}, 3).each(publish)
	left = left.add([]linkhealth.Transition{of("a", false, true)}, 4).each(publish)
	if len(left) != 2 || !left[0].tried || left[1].tried {
		t.Errorf("left %+v", left)
	}
	down = ""
	if left = left.add(nil, 5).each(publish); len(left) != 0 {
		t.Errorf("left %+v", left)
	}
	if got, want := strings.Join(published, ", "), "b true true 1, a true true 1, a false true 4"; got != want {
		t.Errorf("published %s, want %s", got, want)
	}
}
