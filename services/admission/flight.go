package admission

import (
	"net/url"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/notice"
)

// Bounds on the deliveries at the same time: in all, to one receiver, and of one person's notices. A receiver that does
// not answer takes its time for each notice, and a person may name many of them: the others must find room.
const noticesAtOnce, noticesToReceiver, noticesOfUser = 64, 2, 16

// flight holds the deliveries under way.
type flight struct {
	jobs             map[string]train.JobID // by the keys of the notices
	receivers, users map[string]int
}

func newFlight() flight {
	return flight{map[string]train.JobID{}, map[string]int{}, map[string]int{}}
}

// begin adds a notice. It returns false if there is no room for it now.
func (f *flight) begin(n notice.Notice) bool {
	to := receiverOf(n.To)
	if len(f.jobs) >= noticesAtOnce || f.receivers[to] >= noticesToReceiver || f.users[n.User] >= noticesOfUser {
		return false
	}
	f.jobs[n.Key] = n.Job
	f.receivers[to]++
	f.users[n.User]++
	return true
}

func (f *flight) end(n notice.Notice) {
	delete(f.jobs, n.Key)
	less(f.receivers, receiverOf(n.To))
	less(f.users, n.User)
}

// less counts down. Counts of nothing are not held.
func less(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

// receiverOf names what answers, or does not: the host of a webhook, the mail server, or a command.
func receiverOf(to train.NotifySpec) string {
	if at, err := url.Parse(to.Webhook); err == nil && to.Webhook != "" {
		return "host " + at.Host
	}
	return "command " + to.Command // none: the mail server
}
