package staging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The data of a pod is fetched by a container of its own, which ends before the job's starts. It has no access to the
// cluster: an Order says what it is to do.

// Argument is that of the container, and OrderVariable the variable with its Order.
const (
	Argument      = "__stage"
	OrderVariable = "SWITCHYARD_STAGING"
)

// PodRoot is where the container sees the folder of the cache.
const PodRoot = "/switchyard/data"

// NeverCode is the exit status of the container if another try cannot mend what is wrong.
const NeverCode = 3

// Order is what a container is to fetch.
type Order struct {
	Terms

	// URL is the address, Reader the name under which the job finds the copy.
	URL    string `json:"url"`
	Reader string `json:"reader"`
	// Live names the readers of the cache at the time At. A reader that began later keeps its copy as well.
	Live []string  `json:"live,omitempty"`
	At   time.Time `json:"at"`
}

// linksName is the folder in a cache with a link for each reader of a pod.
const linksName = "of"

// Link returns where in the folder of a cache a reader finds its copy: a link, since the name of the copy is known only
// once it is there.
func Link(reader string) string { return filepath.Join(linksName, reader) }

// clockSkew is how far the clocks of executor and storage may differ.
const clockSkew = time.Hour

// reads reports whether a reader is one of the order's, or may have begun since.
func (o Order) reads(root, reader string) bool {
	if reader == o.Reader || slices.Contains(o.Live, reader) {
		return true
	}
	info, err := os.Lstat(filepath.Join(root, Link(reader)))
	return err == nil && info.ModTime().After(o.At.Add(-clockSkew))
}

// RunIfAsked takes over a process that was started as such a container, and then does not return.
func RunIfAsked(args []string) {
	if len(args) != 2 || args[1] != Argument {
		return
	}
	ctx, cancel := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	code := stage(ctx, os.Getenv(OrderVariable), PodRoot, "/dev/termination-log")
	cancel()
	os.Exit(code) //nolint:forbidigo // the process is the container from here on: there is no main to go back to
}

// stage does what an order says. Its last words are how far it came, or why it failed.
func stage(ctx context.Context, order, root, words string) (code int) {
	done, err := fetchFor(ctx, order, root)
	text, _ := json.Marshal(done)
	if err != nil {
		text, code = []byte(err.Error()), 1
		fmt.Fprintln(os.Stderr, err)
	}
	if errors.Is(err, ErrNever) {
		code = NeverCode
	}
	_ = os.WriteFile(words, text, 0o600) // without them, the cluster shows what was printed
	return code
}

func fetchFor(ctx context.Context, order, root string) (done train.Staging, err error) {
	var o Order
	if err := json.Unmarshal([]byte(order), &o); err != nil || o.Reader == "" || o.Reader != filepath.Base(o.Reader) {
		return done, fmt.Errorf("%w: %s is no order: %q", ErrNever, OrderVariable, order)
	}
	if err := os.MkdirAll(filepath.Join(root, linksName), 0o755); err != nil {
		return done, err
	}
	// The link is there first, so that others see that this reader has begun.
	if err := link(root, o.Reader, linksName); err != nil {
		return done, err
	}
	forget(root, o)
	c := New(Config{Terms: o.Terms, Dir: root, Reads: func(reader string) bool { return o.reads(root, reader) }})
	folder, err := c.Fetch(ctx, o.URL, o.Reader, func(now train.Staging) { done = now })
	if err != nil {
		return done, err
	}
	below, err := filepath.Rel(root, folder)
	if err != nil {
		return done, err
	}
	return done, link(root, o.Reader, below)
}

// link lets a reader find a folder of the cache. The link is replaced as a whole: other ranks of the job follow it.
func link(root, reader, folder string) error {
	next := filepath.Join(root, linksName, fmt.Sprintf(".%s.%d", reader, time.Now().UnixNano()))
	if err := os.Symlink(filepath.Join("..", folder), next); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(root, Link(reader)))
}

// forget removes the links of readers that have ended.
func forget(root string, o Order) {
	links, _ := os.ReadDir(filepath.Join(root, linksName))
	for _, l := range links {
		if l.Type()&fs.ModeSymlink != 0 && !strings.HasPrefix(l.Name(), ".") && !o.reads(root, l.Name()) {
			_ = os.Remove(filepath.Join(root, Link(l.Name()))) // else the next one does it
		}
	}
}
