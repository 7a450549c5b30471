package profiler

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/profiler/linkhealth"
)

func TestATurnThatCouldNotBeToldIsToldLater(t *testing.T) {
	of := func(link string, degraded, news bool) linkhealth.Turn {
		return linkhealth.Turn{Link: train.Link{ID: link, Degraded: degraded}, News: news}
	}
	var told []string
	down := "a"
	tell := func(t turn) error {
		if t.Link.ID == down {
			return errors.New("the bus is away")
		}
		told = append(told, fmt.Sprintf("%s %v %v %d", t.Link.ID, t.Link.Degraded, t.News, t.slot))
		return nil
	}
	var left untold
	left = left.add([]linkhealth.Turn{of("a", true, true), of("b", true, true)}, 1).each(tell)
	left = left.add([]linkhealth.Turn{of("a", true, false)}, 2).each(tell)
	left = left.add([]linkhealth.Turn{of("a", true, false)}, 3).each(tell)
	left = left.add([]linkhealth.Turn{of("a", false, true)}, 4).each(tell)
	if len(left) != 2 || !left[0].tried || left[1].tried {
		t.Errorf("left %+v", left)
	}
	down = ""
	if left = left.add(nil, 5).each(tell); len(left) != 0 {
		t.Errorf("left %+v", left)
	}
	if got, want := strings.Join(told, ", "), "b true true 1, a true true 1, a false true 4"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
}
