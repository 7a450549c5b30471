package notify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/smtp"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/services/admission/notice"
)

// mail sends a notice by the operator's mail server: with TLS if the server offers it, and with a login if the
// configuration has one.
func (s *Sender) mail(ctx context.Context, n notice.Notice) error {
	if s.config.SMTP == "" {
		return errors.New("send mail: the configuration has no admission.notify_smtp")
	}
	to, err := mail.ParseAddress(n.To.Mail)
	if err != nil {
		return fmt.Errorf("send mail to %q: %w", n.To.Mail, err)
	}
	text, err := s.text(n, to.Address)
	if err != nil {
		return fmt.Errorf("write mail to %s: %w", to.Address, err)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.config.SMTP)
	if err != nil {
		return fmt.Errorf("connect to the mail server: %w", err)
	}
	defer conn.Close()
	if deadline, has := ctx.Deadline(); has {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("connect to the mail server: %w", err)
		}
	}
	if err := s.talk(conn, to.Address, text); err != nil {
		return fmt.Errorf("send mail to %s: %w", to.Address, err)
	}
	return nil
}

func (s *Sender) talk(conn net.Conn, to string, text []byte) error {
	host, _, _ := strings.Cut(s.config.SMTP, ":")
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		return err
	}
	if offers, _ := c.Extension("STARTTLS"); offers {
		if err := c.StartTLS(&tls.Config{ServerName: host}); err != nil {
			return err
		}
	}
	if s.config.SMTPUser != "" {
		if err := c.Auth(smtp.PlainAuth("", s.config.SMTPUser, s.config.SMTPPassword, host)); err != nil {
			return err
		}
	}
	if err := errors.Join(c.Mail(s.config.From), c.Rcpt(to)); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_ = c.Quit() // the server has taken the mail
	return nil
}

// text is the mail. Its id follows from the notice's key, so that mail programs show a repetition once.
func (s *Sender) text(n notice.Notice, to string) ([]byte, error) {
	id := sha256.Sum256([]byte(n.Key))
	var b bytes.Buffer
	for _, h := range [][2]string{
		{"From", s.config.From},
		{"To", to},
		{"Subject", mime.QEncoding.Encode("utf-8", n.Subject())},
		{"Date", n.At.Format(time.RFC1123Z)},
		{"Message-ID", "<" + hex.EncodeToString(id[:12]) + "@switchyard>"},
		{"Auto-Submitted", "auto-generated"},
		{"MIME-Version", "1.0"},
		{"Content-Type", "text/plain; charset=utf-8"},
		{"Content-Transfer-Encoding", "quoted-printable"},
	} {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
	}
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	lines := []string{n.Subject(), "", fmt.Sprintf("state    %s %s", n.State, n.Reason), "message  " + n.Message}
	if n.Hint != "" {
		lines = append(lines, "hint     "+n.Hint)
	}
	lines = append(lines, fmt.Sprintf("epochs   %d", n.EpochsDone), fmt.Sprintf("ran      %.0f s", n.RunSeconds), "", "key "+n.Key, "")
	if _, err := w.Write([]byte(strings.Join(lines, "\r\n"))); err != nil {
		return nil, err
	}
	return b.Bytes(), w.Close()
}
