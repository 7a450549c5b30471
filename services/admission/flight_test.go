package admission

import (
	"fmt"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/notice"
)

// Neither a receiver that does not answer nor a person with many of them takes all the room.
func TestTheNoticesOfOthersFindRoom(t *testing.T) {
	f := newFlight()
	var under []notice.Notice
	n := 0
	begin := func(user string, to train.NotifySpec) bool {
		n++
		what := notice.Notice{Key: fmt.Sprint(n), Job: "j", User: user, To: to}
		room := f.begin(what)
		if room {
			under = append(under, what)
		}
		return room
	}
	dead := func(i int) train.NotifySpec {
		return train.NotifySpec{Webhook: fmt.Sprintf("https://dead-%d.example/a?b=%d", i, n)}
	}
	for range 100 {
		begin("ann", dead(0))
	}
	if len(under) != noticesToReceiver {
		t.Errorf("%d to one host, want %d", len(under), noticesToReceiver)
	}
	for i := range 100 {
		begin("ann", dead(i+1))
	}
	if len(under) != noticesOfUser {
		t.Errorf("%d of one person, want %d", len(under), noticesOfUser)
	}
	for _, to := range []train.NotifySpec{{Webhook: "https://fine.example"}, {Mail: "bob@example.org"}, {Command: "pager"}} {
		if !begin("bob", to) {
			t.Errorf("no room for %+v", to)
		}
	}
	for i := range 1000 {
		begin(fmt.Sprint(i), dead(1000+i))
	}
	if len(under) != noticesAtOnce {
		t.Errorf("%d in all, want %d", len(under), noticesAtOnce)
	}
	for _, what := range under {
		f.end(what)
	}
	if len(f.jobs)+len(f.receivers)+len(f.users) > 0 {
		t.Errorf("left are %+v", f)
	}
}
