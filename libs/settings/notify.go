package settings

import (
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/config"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Notify configures how people are notified of what happens to their jobs.
type Notify struct {
	Users        map[string]string
	Secret       string
	Allow        []string
	Commands     map[string]string
	SMTP         string
	From         string
	SMTPUser     string
	SMTPPassword string
}

func (c *Notify) declare(s *config.Section) {
	s.TextMap(&c.Users, "notify-users", "recipient that is notified of the end of each job of a user, by user: a URL, mailto:ADDRESS or command:NAME").Check(func() error {
		for _, user := range slices.Sorted(maps.Keys(c.Users)) {
			n, ok := train.ParseNotify(c.Users[user])
			switch {
			case !ok:
				return fmt.Errorf("%s=%s: want a URL of http or https, mailto:ADDRESS or command:NAME", user, c.Users[user])
			case n.Command != "" && c.Commands[n.Command] == "":
				return fmt.Errorf("%s=%s: admission.notify_commands has no %s", user, c.Users[user], n.Command)
			case n.Mail != "" && c.SMTP == "":
				return fmt.Errorf("%s=%s: no mail is sent without admission.notify_smtp", user, c.Users[user])
			}
		}
		return nil
	})
	s.String(&c.Secret, "notify-secret", "", "key with which webhooks are signed by HMAC-SHA256 (empty: they are not signed)").Secret()
	s.Strings(&c.Allow, "notify-allow", nil, "networks that webhooks may reach although they are private, loopback, link-local or metadata addresses, as 10.1.0.0/16").Check(func() error {
		for _, network := range c.Allow {
			if _, err := netip.ParsePrefix(network); err != nil {
				return fmt.Errorf("%q: want a network such as 127.0.0.1/32", network)
			}
		}
		return nil
	})
	s.TextMap(&c.Commands, "notify-commands", "programs that jobs may name in notify, by name: an absolute path and arguments. They run as the user of this service").Check(func() error {
		for _, name := range slices.Sorted(maps.Keys(c.Commands)) {
			if line := strings.Fields(c.Commands[name]); len(line) == 0 || !filepath.IsAbs(line[0]) {
				return fmt.Errorf("%s=%s: want an absolute path", name, c.Commands[name])
			}
		}
		return nil
	})
	s.String(&c.SMTP, "notify-smtp", "", "mail server, as HOST:PORT (empty: no mail is sent)").Check(func() error {
		if c.SMTP == "" {
			return nil
		}
		return hostPort(c.SMTP, "mail.example.com:25")
	})
	s.String(&c.From, "notify-from", "switchyard@localhost", "sender of mails").Check(func() error {
		if _, err := mail.ParseAddress(c.From); err != nil || strings.ContainsAny(c.From, "<>\r\n") {
			return errors.New("want an address such as switchyard@example.com")
		}
		return nil
	})
	s.String(&c.SMTPUser, "notify-smtp-user", "", "user of the mail server (empty: no login)")
	s.String(&c.SMTPPassword, "notify-smtp-password", "", "password of the mail server").Secret()
}

// AllowedNetworks are the networks of Allow.
func (c *Notify) AllowedNetworks() []netip.Prefix {
	var all []netip.Prefix
	for _, network := range c.Allow {
		if p, err := netip.ParsePrefix(network); err == nil {
			all = append(all, p)
		}
	}
	return all
}
