package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/kubetoken"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/session"
)

// sessionsName is the file in the data folder with the hashes of the sessions in force.
const sessionsName = "web-sessions.json"

// door finds out who asks: over a Unix socket the user of the machine at its other end, over TCP who has a session, or
// shows a token of Kubernetes. It refuses what a browser sends for another site.
type door struct {
	people *people
	// tokens says whose a token is; nil if none are taken.
	tokens tokens
	// path is the file of the sessions.
	path string
	// hosts are names of this machine under which browsers may know the page, besides localhost and addresses.
	hosts []string
	now   func() time.Time

	mu   sync.Mutex
	book *session.Book
	// url is the address of the page; empty if it is not served over TCP.
	url string
}

// tokens finds out whose a token is. The error is kubetoken.ErrRefused if it is nobody's.
type tokens interface {
	Who(ctx context.Context, token string) (name string, err error)
}

func newDoor(path string, hosts []string, now func() time.Time) (*door, error) {
	d := &door{people: newPeople(), path: path, hosts: hosts, now: now, book: session.New()}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read the sessions of the page: %w", err)
	default:
		if d.book, err = session.Decode(data); err != nil {
			return nil, fmt.Errorf("%s: %w; remove the file to end all sessions", path, err)
		}
	}
	return d, nil
}

// asker is who asks, and whether by a session or a token.
type asker struct {
	session.Who
	session bool
}

type askerKey struct{}

// askerOf returns who sends a request. known is false if nobody has logged in.
func askerOf(ctx context.Context) (a asker, known bool) {
	a, known = ctx.Value(askerKey{}).(asker)
	return a, known
}

func by(r *http.Request, a asker) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), askerKey{}, a))
}

// onSocket serves the users of the machine.
func (d *door) onSocket(next http.Handler) http.Handler {
	return d.guarded(func(w http.ResponseWriter, r *http.Request) {
		uid, err := run.Peer(r.Context())
		if err != nil {
			writeProblem(w, problem(http.StatusForbidden, err.Error(), ""))
			return
		}
		who := session.Who{Owner: true}
		if !owns(uid) {
			who = session.Who{Name: d.people.name(uid)}
		}
		next.ServeHTTP(w, by(r, asker{Who: who}))
	})
}

// unproven is the answer to a token that says nothing.
func unproven(err error) api.Problem {
	if errors.Is(err, kubetoken.ErrRefused) {
		return problem(http.StatusUnauthorized, err.Error(), "make a token for this service: kubectl create token ACCOUNT --audience AUDIENCE")
	}
	return problem(http.StatusServiceUnavailable, err.Error(), "try again")
}

// onTCP serves people with a session or a token; all others get the page alone, which says how to log in.
func (d *door) onTCP(next http.Handler) http.Handler {
	return d.guarded(func(w http.ResponseWriter, r *http.Request) {
		a, known, err := d.who(r)
		switch {
		case err != nil:
			writeProblem(w, unproven(err))
			return
		case known:
			r = by(r, a)
		case strings.HasPrefix(r.URL.Path, "/api/") && (r.URL.Path != api.SessionPath || r.Method != http.MethodPost):
			writeProblem(w, problem(http.StatusUnauthorized, "nobody is logged in here, or the session has ended", "run `switchyard open` and follow the link that it prints"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// who finds out by a token, else by a session, who asks over TCP. The error is that of a token.
func (d *door) who(r *http.Request) (a asker, known bool, err error) {
	if token, shown := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); shown && d.tokens != nil {
		name, err := d.tokens.Who(r.Context(), token)
		return asker{Who: session.Who{Name: name}, session: true}, err == nil, err
	}
	who, known := d.find(r)
	return asker{Who: who, session: true}, known, nil
}

// remains reports whether the person who sent a request may still have its answer: his session or token may have ended
// since. At the other end of a Unix socket nobody else can appear.
func (d *door) remains(r *http.Request) bool {
	if a, _ := askerOf(r.Context()); !a.session {
		return true
	}
	_, known, _ := d.who(r)
	return known
}

// contentPolicy lets the page load nothing but what this service serves.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guarded refuses requests under foreign names and those that a browser sends for another site.
func (d *door) guarded(next http.HandlerFunc) http.Handler {
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		err := origins.Check(r)
		from := r.Header.Get("Sec-Fetch-Site")
		switch {
		case !d.isHere(r.Host):
			writeProblem(w, problem(http.StatusMisdirectedRequest, fmt.Sprintf("%.200q is no name of this service", r.Host), "add it to web.hosts, or use the address that `switchyard open` prints"))
		case err != nil:
			writeProblem(w, problem(http.StatusForbidden, err.Error(), "ask from the page itself"))
		case strings.HasPrefix(r.URL.Path, "/api/") && !slices.Contains([]string{"", "none", "same-origin"}, from):
			writeProblem(w, problem(http.StatusForbidden, "the request comes from the page of another site", "ask from the page itself"))
		default:
			next(w, r)
		}
	})
}

// isHere reports whether the Host of a request is a name of this service. An address is one: a foreign site that claims
// to be here has a name.
func (d *door) isHere(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "localhost" || name == api.SocketHost || slices.Contains(d.hosts, name)
}

// cookieName has the port of the page: browsers send cookies to all ports of a host.
func (d *door) cookieName() string {
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(d.address(), "http://"))
	return "switchyard-" + cmp.Or(port, "page")
}

func (d *door) address() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.url
}

func (d *door) opened(address net.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	host, port, _ := net.SplitHostPort(address.String())
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = cmp.Or(append(slices.Clone(d.hosts), "localhost")...)
	}
	d.url = "http://" + net.JoinHostPort(host, port)
}

func (d *door) find(r *http.Request) (session.Who, bool) {
	cookie, err := r.Cookie(d.cookieName())
	if err != nil {
		return session.Who{}, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.book.Find(cookie.Value, d.now())
}

// link makes a link that logs a person in once.
func (d *door) link(who session.Who) (api.Link, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.url == "" {
		return api.Link{}, problemError{problem(http.StatusConflict, "the page is not served over TCP", "set web.listen, such as 127.0.0.1:7470")}
	}
	token, now := rand.Text(), d.now()
	d.book.Link(token, who, now)
	return api.Link{URL: d.url + "/#login=" + token, Until: now.Add(session.LinkLife)}, nil
}

// postLink answers who asks over a Unix socket with a link for himself.
func (d *door) postLink(_ api.Route, r *http.Request) (answer, error) {
	who, known := askerOf(r.Context())
	if !known || who.session {
		return answer{}, problemError{problem(http.StatusForbidden, "a link is made for the user of the machine who asks, over the Unix socket", "run `switchyard open`")}
	}
	link, err := d.link(who.Who)
	return answer{status: http.StatusCreated, body: link}, err
}

// login begins a session and sets its cookie.
func (d *door) login(w http.ResponseWriter, r *http.Request) {
	var given api.Login
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&given); err != nil {
		writeProblem(w, problem(http.StatusBadRequest, "the body: "+err.Error(), `want {"token": "..."}`))
		return
	}
	value := rand.Text() + rand.Text()
	d.mu.Lock()
	_, ok := d.book.Redeem(given.Token, value, d.now())
	err := d.save()
	d.mu.Unlock()
	switch {
	case !ok:
		writeProblem(w, problem(http.StatusUnauthorized, "the link was used before, or is too old", "run `switchyard open` and follow the link that it prints"))
	case err != nil:
		writeProblem(w, problem(http.StatusInternalServerError, err.Error(), ""))
	default:
		d.setCookie(w, value, int(session.Life.Seconds()))
		w.WriteHeader(http.StatusNoContent)
	}
}

// logout ends the session of the person who asks.
func (d *door) logout(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(d.cookieName()); err == nil {
		d.mu.Lock()
		d.book.End(cookie.Value)
		err = d.save()
		d.mu.Unlock()
		if err != nil {
			writeProblem(w, problem(http.StatusInternalServerError, err.Error(), ""))
			return
		}
	}
	d.setCookie(w, "", -1)
	w.WriteHeader(http.StatusNoContent)
}

func (d *door) setCookie(w http.ResponseWriter, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{Name: d.cookieName(), Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

// save writes the sessions down; the caller holds mu.
func (d *door) save() error {
	data, err := d.book.Encode()
	if err == nil {
		err = installation.WriteFile(d.path, data)
	}
	if err != nil {
		return fmt.Errorf("keep the sessions of the page: %w", err)
	}
	return nil
}
