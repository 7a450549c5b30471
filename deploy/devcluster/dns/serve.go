package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/sourcegraph/conc/pool"
	"golang.org/x/net/dns/dnsmessage"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

const (
	// maxDatagram is what every resolver takes by UDP; more is asked for again by TCP.
	maxDatagram = 512
	// ttlSeconds is short: the pods of a job come and go.
	ttlSeconds = 2
	// queryPatience bounds how long a client may keep a TCP connection without asking.
	queryPatience = 10 * time.Second
)

// Serve answers at address, by UDP and TCP, until ctx is done.
func Serve(ctx context.Context, client kubernetes.Interface, address string) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	names := Names{
		Services: factory.Core().V1().Services().Lister(),
		Slices:   factory.Discovery().V1().EndpointSlices().Lister(),
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())

	var listen net.ListenConfig
	datagrams, err := listen.ListenPacket(ctx, "udp", address)
	if err != nil {
		return fmt.Errorf("listen for queries: %w", err)
	}
	streams, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		datagrams.Close()
		return fmt.Errorf("listen for queries: %w", err)
	}
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error {
		<-ctx.Done()
		datagrams.Close()
		streams.Close()
		return nil
	})
	work.Go(func(context.Context) error { return names.ServeDatagrams(datagrams) })
	work.Go(func(context.Context) error { return names.ServeStreams(streams) })
	return work.Wait()
}

// ServeDatagrams answers queries by UDP until the connection is closed.
func (n Names) ServeDatagrams(datagrams net.PacketConn) error {
	query := make([]byte, maxDatagram)
	for {
		size, from, err := datagrams.ReadFrom(query)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read query: %w", err)
		}
		if reply, err := n.Reply(query[:size], maxDatagram); err == nil {
			// A client that has gone asks again.
			_, _ = datagrams.WriteTo(reply, from)
		}
	}
}

// ServeStreams answers queries by TCP until the listener is closed.
func (n Names) ServeStreams(streams net.Listener) error {
	clients := pool.New()
	defer clients.Wait()
	for {
		stream, err := streams.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept query: %w", err)
		}
		clients.Go(func() { n.serveStream(stream) })
	}
}

// serveStream answers one query: resolvers ask by TCP only what was too long.
func (n Names) serveStream(stream net.Conn) {
	defer stream.Close()
	if err := stream.SetDeadline(time.Now().Add(queryPatience)); err != nil {
		return
	}
	var size uint16
	if err := binary.Read(stream, binary.BigEndian, &size); err != nil {
		return
	}
	query := make([]byte, size)
	if _, err := io.ReadFull(stream, query); err != nil {
		return
	}
	reply, err := n.Reply(query, 1<<16-1)
	if err != nil {
		return
	}
	// A client that has gone asks again.
	_, _ = stream.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
}

// Reply answers one query of the wire format in at most limit bytes; an answer that is longer says that it was cut.
func (n Names) Reply(query []byte, limit int) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil {
		return nil, fmt.Errorf("parse query: %w", err)
	}
	if header.Response {
		return nil, errors.New("parse query: it is a response")
	}
	question, err := parser.Question()
	if err != nil {
		return nil, fmt.Errorf("parse question: %w", err)
	}
	answer, err := n.Resolve(question.Name.String())
	message := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: header.ID, Response: true, OpCode: header.OpCode,
			RecursionDesired: header.RecursionDesired, Authoritative: answer.Inside,
		},
		Questions: []dnsmessage.Question{question},
	}
	switch {
	case err != nil:
		message.RCode = dnsmessage.RCodeServerFailure
	case !answer.Inside:
		message.RCode = dnsmessage.RCodeRefused
	case !answer.Exists:
		message.RCode = dnsmessage.RCodeNameError
	case question.Type == dnsmessage.TypeA:
		message.Answers = addressRecords(question.Name, answer.Addresses)
	}
	reply, err := message.Pack()
	if err != nil {
		return nil, fmt.Errorf("encode reply: %w", err)
	}
	if len(reply) <= limit {
		return reply, nil
	}
	message.Truncated, message.Answers = true, nil
	return message.Pack()
}

func addressRecords(name dnsmessage.Name, addresses []netip.Addr) []dnsmessage.Resource {
	records := make([]dnsmessage.Resource, 0, len(addresses))
	for _, address := range addresses {
		if !address.Is4() {
			continue
		}
		records = append(records, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: ttlSeconds},
			Body:   &dnsmessage.AResource{A: address.As4()},
		})
	}
	return records
}
