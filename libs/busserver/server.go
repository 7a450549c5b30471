// Package busserver starts the nats-server that Switchyard embeds: JetStream with file storage in which every
// acknowledged message is on disk before the ack.
package busserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/switchyard-dl/switchyard/libs/disk"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
)

// Options are the address and the storage of the server.
type Options struct {
	Host string
	// Port 0 takes a free one.
	Port int
	// Dir is the folder in which JetStream keeps its files.
	Dir string
	// Accounts is the part of the configuration that says who may do what (identity.Keys.Accounts). Without accounts
	// nobody outside this process can connect, unless Open lets everybody in, as tests do.
	Accounts string
	Open     bool
	// Cluster, if not nil, makes it one of several servers that keep replicas of the same streams.
	Cluster *Cluster
	// Newest are the sequences up to which each stream was seen, if someone has.
	Newest map[string]uint64
	// Log gets the server's warnings and errors, and its notices at the level debug; nil: nobody does.
	Log *slog.Logger
}

// Cluster is the place of a server among others.
type Cluster struct {
	// Name is the server's own, unique among them. Port is its port for the others, Peers are the ports of all of them
	// on this machine.
	Name  string
	Port  int
	Peers []int
}

// routes returns the URLs of the peers.
func (c *Cluster) routes() []*url.URL {
	var list []*url.URL
	for _, port := range c.Peers {
		list = append(list, &url.URL{Scheme: "nats", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))})
	}
	return list
}

// MaxPayloadBytes is the largest message that a client can send: a body and its headers. The client's own library
// refuses a larger one.
const MaxPayloadBytes = event.MaxStoredBytes + 32<<10

// Server is a running nats-server.
type Server struct {
	s   *server.Server
	dir string
	// open is set if clients need no key.
	open bool
	// failed is set once a write has failed for lack of room; room is the newest look at the disk.
	failed atomic.Bool
	room   atomic.Pointer[disk.Room]
	// reopening lets one at a time close the streams and open them again.
	reopening sync.Mutex
	// Cuts are what was found to be lost before the server started.
	Cuts []Cut
}

const (
	// maxConnections and maxSubscriptions (of one connection) keep a flood from taking the memory of the services. A
	// client that has not shown a key after authSeconds is cut off.
	maxConnections   = 8192
	maxSubscriptions = 16384
	authSeconds      = 5
)

// maxStoreBytes and maxMemoryBytes bound nothing: see Start.
const (
	maxStoreBytes  = 1 << 40
	maxMemoryBytes = 1 << 30
)

// Start runs a server and waits until it accepts connections.
func Start(o Options) (*Server, error) {
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var cuts []Cut
	if o.Cluster == nil { // else the other servers have what is damaged here
		var err error
		if cuts, err = mend(o.Dir, log); err != nil {
			return nil, err
		}
		more, err := raise(o.Dir, o.Newest, log)
		if err != nil {
			return nil, err
		}
		cuts = append(cuts, more...)
	}
	port := o.Port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	options := &server.Options{
		ServerName: "switchyard", Host: o.Host, Port: port, NoSigs: true,
		JetStream: true, StoreDir: o.Dir,
		// The limits of streams and buckets are ceilings, not reservations: by default the server would refuse them if
		// less than their sum is free. Readiness and `doctor` check the real free space of the disk.
		JetStreamMaxStore: maxStoreBytes, JetStreamMaxMemory: maxMemoryBytes,
		// An acknowledged message is a promise to a user: it is synced before the ack, not two minutes later.
		SyncAlways: true, MaxPayload: MaxPayloadBytes,
		MaxConn: maxConnections, MaxSubs: maxSubscriptions, AuthTimeout: authSeconds,
		DontListen: o.Accounts == "" && !o.Open,
	}
	if o.Accounts != "" {
		if err := errors.Join(options.ProcessConfigString(o.Accounts), adopt(o.Dir)); err != nil {
			return nil, fmt.Errorf("configure nats-server: %w", err)
		}
	}
	if c := o.Cluster; c != nil {
		options.ServerName, options.Routes = c.Name, c.routes()
		options.Cluster = server.ClusterOpts{Name: "switchyard", Host: "127.0.0.1", Port: c.Port}
	}
	s, err := begin(options, o.Log)
	if err != nil {
		return nil, err
	}
	if !s.JetStreamEnabled() {
		s.Shutdown()
		return nil, fmt.Errorf("start JetStream in %s: %w", o.Dir, errNotReady)
	}
	return &Server{s: s, dir: o.Dir, open: o.Accounts == "", Cuts: cuts}, nil
}

// StartConfigured runs the server that a file describes, as operators run one, and waits until it accepts connections.
// It does not wait for JetStream: in a cluster that needs the other servers.
func StartConfigured(path string, log *slog.Logger) (*Server, error) {
	options, err := server.ProcessConfigFile(path)
	if err != nil {
		return nil, fmt.Errorf("configure nats-server: %w", err)
	}
	options.NoSigs = true
	s, err := begin(options, log)
	if err != nil {
		return nil, err
	}
	return &Server{s: s, dir: options.StoreDir}, nil
}

// begin starts a server, which logs if log is not nil, and waits until it accepts connections.
func begin(options *server.Options, log *slog.Logger) (*server.Server, error) {
	s, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("configure nats-server: %w", err)
	}
	if log != nil {
		s.SetLoggerV2(logger{log}, false, false, false)
	}
	s.Start()
	if !s.ReadyForConnections(15 * time.Second) {
		s.Shutdown()
		return nil, fmt.Errorf("start nats-server on %s:%d: %w", options.Host, options.Port, errNotReady)
	}
	return s, nil
}

// Reload applies the file of StartConfigured again, to connections that are open, too.
func (s *Server) Reload() error {
	if err := s.s.Reload(); err != nil {
		return fmt.Errorf("apply the configuration of nats-server again: %w", err)
	}
	return nil
}

var errNotReady = errors.New("not ready (is the port taken or the folder in use?)")

// adopt gives the account of the services what an earlier version, without accounts, has stored.
func adopt(dir string) error {
	old, own := filepath.Join(dir, "jetstream", "$G"), filepath.Join(dir, "jetstream", identity.Account)
	if _, err := os.Stat(own); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(old, own); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("give the streams an account: %w", err)
	}
	return nil
}

// InProcessConn connects a client of this process, without the network.
func (s *Server) InProcessConn() (net.Conn, error) { return s.s.InProcessConn() }

// URL returns the address for clients.
func (s *Server) URL() string { return s.s.ClientURL() }

// Stop shuts the server down and waits for it.
func (s *Server) Stop() {
	s.s.Shutdown()
	s.s.WaitForShutdown()
}

// Port returns the port of the server.
func (s *Server) Port() int {
	if a, ok := s.s.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// logger passes on what the server logs. Most of its notices describe each start and stop.
type logger struct{ log *slog.Logger }

func (l logger) write(level slog.Level, format string, v []any) {
	l.log.Log(context.Background(), level, "nats-server", "message", fmt.Sprintf(format, v...))
}

// Noticef implements server.Logger.
func (l logger) Noticef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Warnf implements server.Logger.
func (l logger) Warnf(format string, v ...any) { l.write(slog.LevelWarn, format, v) }

// Errorf implements server.Logger.
func (l logger) Errorf(format string, v ...any) { l.write(slog.LevelError, format, v) }

// Fatalf implements server.Logger. The server then ends by itself.
func (l logger) Fatalf(format string, v ...any) { l.write(slog.LevelError, format, v) }

// Debugf implements server.Logger.
func (l logger) Debugf(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Tracef implements server.Logger.
func (l logger) Tracef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }
