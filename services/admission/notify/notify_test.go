package notify

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/notice"
)

func example(to train.NotifySpec) notice.Notice {
	return notice.Notice{
		Key: "job/a-1/end/0", On: train.NoticeFailed, Job: "a-1", Name: "Größe\r\nBcc: x@y", User: "ann", State: train.StateFailed, Reason: "ExitStatus",
		Message: "exit status 1 = \x00bad", At: time.Unix(1000, 0), To: to,
	}
}

func TestAddressesOfThisMachineAreRefused(t *testing.T) {
	lab := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	for _, c := range []struct {
		address  string
		networks []netip.Prefix
		want     bool
	}{
		{"93.184.216.34:443", nil, true},
		{"[2606:2800:220:1::1]:443", nil, true},
		// Private networks were allowed once. An operator who wants them names them.
		{"10.0.0.7:80", nil, false},
		{"10.0.0.7:80", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, true},
		{"10.0.1.7:80", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, false},
		{"172.16.0.1:80", nil, false},
		{"192.168.1.1:80", nil, false},
		{"[::ffff:192.168.1.1]:80", nil, false},
		{"[fd12:3456::1]:80", nil, false},
		{"100.64.0.1:80", nil, false},
		{"[64:ff9b::a00:7]:80", nil, false},
		{"[64:ff9b::5db8:d822]:80", nil, true},
		{"255.255.255.255:80", nil, false},
		{"127.0.0.1:80", nil, false},
		{"127.0.0.1:80", lab, true},
		{"127.0.0.2:80", lab, false},
		{"[::1]:80", nil, false},
		{"[::ffff:127.0.0.1]:80", nil, false},
		{"[::ffff:169.254.169.254]:80", nil, false},
		{"169.254.169.254:80", nil, false},
		{"[fe80::1%lo]:80", nil, false},
		{"[fd00:ec2::254]:80", nil, false},
		{"100.100.100.200:80", nil, false},
		{"0.0.0.0:80", nil, false},
		{"[::]:80", nil, false},
		{"224.0.0.1:80", nil, false},
	} {
		if err := allowed(c.address, c.networks); (err == nil) != c.want {
			t.Errorf("%s: %v", c.address, err)
		}
	}
}

func TestWebhook(t *testing.T) {
	var got notice.Notice
	answer, seen := http.StatusNoContent, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen++
		body, _ := io.ReadAll(r.Body)
		want := "sha256=" + signature("secret", r.Header.Get("X-Switchyard-Timestamp"), body)
		if err := json.Unmarshal(body, &got); err != nil || r.Header.Get("X-Switchyard-Signature") != want || r.Header.Get("Idempotency-Key") != "job/a-1/end/0" {
			t.Errorf("%v: %v, want the signature %s: %s", err, r.Header, want, body)
		}
		w.Header().Set("Location", "/again")
		w.WriteHeader(answer)
	}))
	defer server.Close()
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	ours := New(settings.Notify{Secret: "secret", Allow: []string{"127.0.0.1/32"}})
	if err := ours.Send(t.Context(), example(train.NotifySpec{Webhook: server.URL})); err != nil || got.On != train.NoticeFailed || got.State != train.StateFailed {
		t.Errorf("%v: %+v", err, got)
	}
	for _, answer = range []int{http.StatusFound, http.StatusInternalServerError} {
		if err := ours.Send(t.Context(), example(train.NotifySpec{Webhook: server.URL})); err == nil || !strings.Contains(err.Error(), fmt.Sprint(answer)) {
			t.Errorf("an answer of %d: %v", answer, err)
		}
	}
	if seen != 3 {
		t.Errorf("%d requests came, want 3: a redirect is not followed", seen)
	}
	// A name that leads here is refused when it is dialled, whatever it was before.
	for _, host := range []string{"http://localhost", "http://127.0.0.1", "http://[::1]", "http://2130706433"} {
		err := New(settings.Notify{}).Send(t.Context(), example(train.NotifySpec{Webhook: host + port + "/?token=t0k3n"}))
		if err == nil || strings.Contains(err.Error(), "t0k3n") {
			t.Errorf("%s: %v: want an error without the path and the token, which are a secret", host, err)
		}
	}
	if seen != 3 {
		t.Errorf("%d requests came, want none more", seen-3)
	}
}

// TestMail: against a listener that talks SMTP.
func TestMail(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var serving conc.WaitGroup
	var envelope []string
	var text string
	serving.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		fmt.Fprint(conn, "220 here\r\n")
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			verb, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch verb {
			case "MAIL", "RCPT":
				envelope = append(envelope, strings.TrimSpace(line))
			case "DATA":
				fmt.Fprint(conn, "354 go on\r\n")
				for line != ".\r\n" && err == nil {
					line, err = in.ReadString('\n')
					text += line
				}
			case "QUIT":
				fmt.Fprint(conn, "221 bye\r\n")
				return
			}
			fmt.Fprint(conn, "250 ok\r\n")
		}
	})
	s := New(settings.Notify{SMTP: listener.Addr().String(), From: "switchyard@lab.example"})
	if err := s.Send(t.Context(), example(train.NotifySpec{Mail: "ann@lab.example"})); err != nil {
		t.Fatal(err)
	}
	serving.Wait()
	if want := "[MAIL FROM:<switchyard@lab.example> RCPT TO:<ann@lab.example>]"; fmt.Sprint(envelope) != want {
		t.Errorf("the envelope is %v, want %s", envelope, want)
	}
	m, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	body, _ := io.ReadAll(m.Body)
	if m.Header.Get("Bcc") != "" || !strings.HasSuffix(m.Header.Get("Message-ID"), "@switchyard>") || !strings.Contains(string(body), "exit status 1 =3D") {
		t.Errorf("the mail is\n%s", text)
	}
	if err := New(settings.Notify{}).Send(t.Context(), example(train.NotifySpec{Mail: "ann@lab.example"})); err == nil || !strings.Contains(err.Error(), "notify_smtp") {
		t.Errorf("without a server: %v", err)
	}
}

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "tell")
	t.Setenv("SECRET_OF_THE_SERVICE", "x")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nenv | sort >$1/env; cat >$1/body; test -z \"$2\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := New(settings.Notify{Commands: map[string]string{"tell": script + " " + dir, "fails": script + " " + dir + " x"}})
	if err := s.Send(t.Context(), example(train.NotifySpec{Command: "tell"})); err != nil {
		t.Fatal(err)
	}
	env, _ := os.ReadFile(filepath.Join(dir, "env"))
	body, _ := os.ReadFile(filepath.Join(dir, "body"))
	if e := string(env); !strings.Contains(e, "NOTICE_KEY=job/a-1/end/0\n") || !strings.Contains(e, "NOTICE_ON=failed\n") || strings.Contains(e, "SECRET") || !json.Valid(body) {
		t.Errorf("the command got\n%s\n%s", env, body)
	}
	for _, name := range []string{"fails", "other"} {
		if err := s.Send(t.Context(), example(train.NotifySpec{Command: name})); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
