// Package notify delivers notices: by webhook, by mail, or to a program of the operator. It decides nothing.
package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/services/admission/notice"
)

// timeout bounds one delivery.
const timeout = 15 * time.Second

// Sender delivers notices.
type Sender struct {
	config settings.Notify
	web    *http.Client
}

// New makes a sender.
func New(c settings.Notify) *Sender {
	dialer := &net.Dialer{Timeout: timeout, Control: func(_, address string, _ syscall.RawConn) error { return allowed(address, c.AllowedNetworks()) }}
	return &Sender{c, &http.Client{
		Timeout: timeout,
		// No proxy: it would choose the address.
		Transport:     &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: timeout, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// errAddress says that a webhook leads to the machine itself or into its network.
var errAddress = errors.New("webhooks must not reach this machine, private networks or a cloud's metadata")

// allowed refuses addresses that are not public, unless the operator's networks contain them: people who submit
// jobs could otherwise reach services that trust this machine. It sees the address that is dialled, so that a name that
// changes its address gains nothing.
func allowed(address string, networks []netip.Prefix) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial %q: %w", address, err)
	}
	ip := at.Addr().Unmap().WithZone("")
	if netip.MustParsePrefix("64:ff9b::/96").Contains(ip) { // a gateway translates it
		wide := ip.As16()
		ip = netip.AddrFrom4([4]byte(wide[12:]))
	}
	if slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return nil
	}
	// Clouds have metadata services in 100.64.0.0/10, which is not private by RFC 1918.
	if netip.MustParsePrefix("100.64.0.0/10").Contains(ip) || !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return fmt.Errorf("dial %s: %w: admission.notify_allow can allow it", ip, errAddress)
	}
	return nil
}

// Send delivers a notice. It may be repeated: the receiver knows it by its key.
func (s *Sender) Send(ctx context.Context, n notice.Notice) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case n.To.Webhook != "":
		return s.post(ctx, n)
	case n.To.Mail != "":
		return s.mail(ctx, n)
	}
	return s.command(ctx, n)
}

// post signs time and body: a receiver with the secret can check that the notice comes from here, and when.
func (s *Sender) post(ctx context.Context, n notice.Notice) error {
	body, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode notice %s: %w", n.Key, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, n.To.Webhook, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request of notice %s: its webhook is no URL", n.Key)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", n.Key)
	if s.config.Secret != "" {
		at := strconv.FormatInt(time.Now().Unix(), 10)
		request.Header.Set("X-Switchyard-Timestamp", at)
		request.Header.Set("X-Switchyard-Signature", "sha256="+signature(s.config.Secret, at, body))
	}
	answer, err := s.web.Do(request)
	if u, is := errors.AsType[*url.Error](err); is {
		err = u.Err // without the URL, which lets anybody post to its receiver
	}
	if err != nil {
		return fmt.Errorf("post notice %s: %w", n.Key, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 200))
		return fmt.Errorf("post notice %s: want an answer of 200 to 299, found %s %q", n.Key, answer.Status, text)
	}
	return nil
}

// signature is HMAC-SHA256 of the time, a dot and the body, in hex.
func signature(secret, at string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(at + "."))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// command runs a program of the operator with the notice in environment variables, and as JSON on its input. It gets
// nothing else of this process's environment than PATH and HOME.
func (s *Sender) command(ctx context.Context, n notice.Notice) error {
	line := strings.Fields(s.config.Commands[n.To.Command])
	if len(line) == 0 {
		return fmt.Errorf("run command %q: the configuration has no such command in admission.notify_commands", n.To.Command)
	}
	body, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode notice %s: %w", n.Key, err)
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdin, cmd.Dir = bytes.NewReader(body), os.TempDir()
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "NOTICE_KEY=" + n.Key, "NOTICE_ON=" + string(n.On), "NOTICE_JOB=" + string(n.Job),
		"NOTICE_NAME=" + n.Name, "NOTICE_USER=" + n.User, "NOTICE_STATE=" + string(n.State), "NOTICE_REASON=" + n.Reason,
		"NOTICE_MESSAGE=" + strings.ReplaceAll(n.Message, "\x00", ""),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run command %q for notice %s: %w: %.200q", n.To.Command, n.Key, err, out)
	}
	return nil
}
