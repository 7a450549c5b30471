package system

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
)

// busVariable makes this program a server of a NATS cluster, with the options in JSON.
const busVariable = "SYSTEM_TEST_BUS"

func serveBus(options string) int {
	var o busserver.Options
	err := json.Unmarshal([]byte(options), &o)
	if err == nil {
		var s *busserver.Server
		if s, err = busserver.Start(o); err == nil {
			stop := make(chan os.Signal, 1)
			signal.Notify(stop, syscall.SIGTERM)
			<-stop
			s.Stop()
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// threeBuses starts the parts around a cluster of three servers.
func (s *storm) threeBuses() {
	s.threeServers()
	s.startAll(s.buses...)
}

// threeServers makes a cluster of three servers, each of which keeps every stream.
func (s *storm) threeServers() {
	peers := []int{bustest.FreePort(s.t), bustest.FreePort(s.t), bustest.FreePort(s.t)}
	accounts, err := s.keys().Accounts()
	if err != nil {
		s.t.Fatal(err)
	}
	var urls []string
	for i, peer := range peers {
		name := fmt.Sprintf("bus-%d", i)
		port := bustest.FreePort(s.t)
		options, err := json.Marshal(busserver.Options{
			Port: port, Dir: filepath.Join(s.dir, name), Accounts: accounts, Cluster: &busserver.Cluster{Name: name, Port: peer, Peers: peers},
		})
		if err != nil {
			s.t.Fatal(err)
		}
		s.servers[name] = busVariable + "=" + string(options)
		urls, s.buses = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", port)), append(s.buses, name)
	}
	s.urls, s.common = strings.Join(urls, ","), []string{"--bus-replicas", "3"}
}

// streamLeader returns the server that leads a stream, or any of them if none says so.
func (s *storm) streamLeader(stream string) string {
	name := s.buses[s.random.IntN(len(s.buses))]
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second) // an election answers nobody
	defer cancel()
	if st, err := s.js.Stream(ctx, stream); err == nil && st.CachedInfo().Cluster != nil {
		name = cmp.Or(st.CachedInfo().Cluster.Leader, name)
	}
	return name
}
