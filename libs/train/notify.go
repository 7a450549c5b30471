package train

import (
	"slices"
	"strings"
	"time"
)

// NotifySpec says who is notified when something happens to a job: one of Webhook, Mail and Command.
type NotifySpec struct {
	// On lists the events: ended, failed, silent, preempted, late (default: ended). Every failed job has also ended.
	On []NoticeKind `json:"on,omitempty"`
	// Webhook is the URL that gets a POST with the notice as JSON.
	Webhook string `json:"webhook,omitempty"`
	// Mail is the address that gets a mail.
	Mail string `json:"mail,omitempty"`
	// Command is the name of a program that the operator's configuration has.
	Command string `json:"command,omitempty"`
}

// NoticeKind is what a notice is about.
type NoticeKind string

// The kinds of notices.
const (
	NoticeEnded     NoticeKind = "ended"     // the job has ended, in any way
	NoticeFailed    NoticeKind = "failed"    // it has failed
	NoticeSilent    NoticeKind = "silent"    // its code has reported no step for long
	NoticePreempted NoticeKind = "preempted" // it has left its devices, and goes on later
	NoticeLate      NoticeKind = "late"      // its deadline has passed
)

// NoticeKinds lists the kinds of notices.
func NoticeKinds() []NoticeKind {
	return []NoticeKind{NoticeEnded, NoticeFailed, NoticeSilent, NoticePreempted, NoticeLate}
}

// Wants reports whether the target gets notices of a kind.
func (n NotifySpec) Wants(kind NoticeKind) bool {
	if len(n.On) == 0 {
		return kind == NoticeEnded
	}
	return slices.Contains(n.On, kind)
}

// ParseNotify reads a target as a flag and the operator's configuration have it: a URL of http or https,
// mailto:ADDRESS or command:NAME.
func ParseNotify(target string) (NotifySpec, bool) {
	if address, is := strings.CutPrefix(target, "mailto:"); is {
		return NotifySpec{Mail: address}, address != ""
	}
	if name, is := strings.CutPrefix(target, "command:"); is {
		return NotifySpec{Command: name}, name != ""
	}
	return NotifySpec{Webhook: target}, strings.HasPrefix(target, "http://") || strings.HasPrefix(target, "https://")
}

// Notices is the record of the notices about a job.
type Notices struct {
	// Told has the time at which each notice was delivered or given up, by its key.
	Told map[string]time.Time `json:"told"`
}
