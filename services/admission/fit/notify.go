package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// notify checks who is to be notified about the job.
func (c *checker) notify() {
	if n := len(c.spec.Notify); n > MaxNotify {
		c.refuse("OutOfRange", "notify", "", "want at most %d, found %d", MaxNotify, n)
		return
	}
	var kinds []string
	for _, k := range train.NoticeKinds() {
		kinds = append(kinds, string(k))
	}
	for i, n := range c.spec.Notify {
		field := fmt.Sprintf("notify[%d]", i)
		for k, on := range n.On {
			c.oneOf(fmt.Sprintf("%s.on[%d]", field, k), string(on), kinds...)
		}
		c.recipient(field, n)
	}
}

// recipient checks the one target of a notice.
func (c *checker) recipient(field string, n train.NotifySpec) {
	given := 0
	for _, target := range []string{n.Webhook, n.Mail, n.Command} {
		if target != "" {
			given++
		}
	}
	switch {
	case given != 1:
		c.refuse("Contradiction", field, `e.g. {"on": ["failed"], "webhook": "https://example.com/hook"}`, "want one of webhook, mail and command, found %d", given)
	case n.Webhook != "" && !isURL(n.Webhook):
		c.refuse("InvalidTarget", field+".webhook", "", "want a URL of http or https without user and password, at most %d bytes", maxTarget)
	case n.Mail != "" && !isAddress(n.Mail):
		c.refuse("InvalidTarget", field+".mail", "", "want one address such as ann@example.com, found %s", quote(n.Mail))
	case n.Mail != "" && !c.where.Means.Mail:
		c.refuse("NotSupported", field+".mail", "ask the operator for admission.notify_smtp, or give a webhook", "no mail is sent here")
	case n.Command != "" && !slices.Contains(c.where.Means.Commands, n.Command):
		c.refuse("NoSuchCommand", field+".command", "ask the operator for an entry in admission.notify_commands", "want one of the commands [%s], found %s",
			strings.Join(c.where.Means.Commands, ", "), quote(n.Command))
	}
}

// maxTarget is the longest URL or address.
const maxTarget = 1024

func isURL(s string) bool {
	_, host, _ := strings.Cut(s, "://")
	_, ok := train.ParseNotify(s)
	return ok && host != "" && !strings.HasPrefix(s, "mailto:") && !strings.HasPrefix(s, "command:") && !strings.ContainsAny(s, " @") && printable(s) && len(s) <= maxTarget
}

func isAddress(s string) bool {
	name, host, _ := strings.Cut(s, "@")
	return name != "" && host != "" && !strings.Contains(host, "@") && !strings.ContainsAny(s, " <>,;") && printable(s) && len(s) <= maxTarget
}
