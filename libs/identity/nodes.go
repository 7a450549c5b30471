package identity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Node is the role of a node agent on another machine. It speaks from an account of its own, which has the subjects of
// its node alone; the agent beside the other services is the role nodeagent.
const Node = "node"

// Agent is the service whose part of the tables a node has.
const Agent = "nodeagent"

// nodesFolder has a folder for each node, with its key.
const nodesFolder = "nodes"

// isNodeName says whether a name is that of a node. No regular expression: it would be compiled at the start of every
// command.
func isNodeName(name string) bool {
	const most = 64
	other := func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}
	return name != "" && len(name) <= most && !strings.ContainsFunc(name, other)
}

// nodeConnections and nodeSubscriptions bound what an agent can take.
const (
	nodeConnections   = 8
	nodeSubscriptions = 256
)

// Nodes returns the names of the nodes that have a key.
func (k Keys) Nodes() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(string(k), nodesFolder))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the nodes that have a key: %w", err)
	}
	var nodes []string
	for _, e := range entries {
		if isNodeName(e.Name()) && k.OfNode(e.Name()).File(Node) != "" {
			nodes = append(nodes, e.Name())
		}
	}
	return nodes, nil
}

// OfNode returns the folder of the agent of a node.
func (k Keys) OfNode(name string) Keys { return Keys(filepath.Join(string(k), nodesFolder, name)) }

// AddNode makes the key of a node's agent, unless it has one. The folder keys/nodes/NAME is the agent's --keys.
func (k Keys) AddNode(name string) error {
	if !isNodeName(name) {
		return fmt.Errorf("node %.80q: want 1 to 64 letters, digits, '-' or '_', as its agent names itself", name)
	}
	own := k.OfNode(name)
	if own.File(Node) != "" {
		return nil
	}
	pair, err := nkeys.CreateUser()
	if err != nil {
		return fmt.Errorf("make the key of the node %s: %w", name, err)
	}
	seed, err := pair.Seed()
	if err == nil {
		err = os.MkdirAll(string(own), 0o700)
	}
	if err == nil {
		err = installation.WriteFile(own.path(Node), append(seed, '\n')) // mode 0600
	}
	if err != nil {
		return fmt.Errorf("make the key of the node %s: %w", name, err)
	}
	return nil
}

// ReportPrefix begins the subjects on which admission gets what the agents of nodes report: the node and the subject
// for which it is meant follow.
const ReportPrefix = "switchyard.admission.reported."

// NodePermissions returns what the agent of a node may do. It publishes all facts, and reports about jobs, through
// admission, which knows where jobs run and stores the messages of many nodes together. It writes the records of its
// own node to the server directly, so that a node counts as alive while admission is away.
func NodePermissions(node string) Permissions {
	direct, reports := nodeWriting(node)
	return Permissions{Publish: slices.Concat(nodeReading(), direct, reports), Subscribe: append(republishedToNodes(), InboxPrefix(Node)+".>")}
}

// nodeWriting returns the subjects of what the agent of a node writes: to the server, and through admission.
func nodeWriting(node string) (direct, reports []string) {
	direct = []string{"switchyard.bus.trouble"}
	for _, k := range event.Kinds() {
		switch {
		case k.Publisher != Agent:
		case AboutNode(k):
			reports = append(reports, "yard."+k.Entity+"."+node+"."+k.Fact+".*")
		default:
			reports = append(reports, "yard."+k.Entity+".*."+k.Fact+".*")
		}
	}
	for _, k := range contract.Buckets() {
		for _, r := range k.Records {
			switch {
			case r.Writer != Agent:
			case r.Key == "<node>":
				direct = append(direct, "$KV."+k.Name+"."+node)
			default:
				reports = append(reports, "$KV."+k.Name+".*.*") // <job>.<attempt>
			}
		}
	}
	return direct, reports
}

// AboutNode reports whether an agent states facts of a kind about its node, rather than about a job.
func AboutNode(k event.Kind) bool {
	return k.Publisher == Agent && strings.HasPrefix(k.Key, "node/<id>/")
}

// nodeReading are the requests by which an agent reads. They make nothing on the server: a consumer could deliver to
// any subject of the account in which it is. Jobs, with commands and environment, are not among what it reads.
func nodeReading() []string {
	subjects := []string{"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES"}
	for _, k := range contract.Buckets() {
		if Republished(k) || slices.ContainsFunc(k.Records, func(r contract.Record) bool { return r.Writer == Agent }) {
			subjects = append(subjects, "$JS.API.STREAM.MSG.GET.KV_"+k.Name, "$JS.API.DIRECT.GET.KV_"+k.Name, "$JS.API.DIRECT.GET.KV_"+k.Name+".>")
		}
	}
	return subjects
}

// Republished reports whether the server publishes each change of a bucket once more, for the agents of nodes. These
// are the buckets that others write for agents, except jobs, which agents may not read. The records of nodes change so
// often that agents ask for them at intervals instead.
func Republished(k contract.BucketInfo) bool {
	reads := slices.ContainsFunc(k.Records, func(r contract.Record) bool { return slices.Contains(r.Readers, Agent) })
	return reads && k.Name != string(contract.Jobs)
}

// Changes returns the subject on which the server republishes the changes of a key of a bucket.
func Changes(bucketAndKey string) string { return "switchyard.changes." + bucketAndKey }

// republishedToNodes are the subjects of changes to which the agent of a node may subscribe.
func republishedToNodes() (subjects []string) {
	for _, k := range contract.Buckets() {
		if Republished(k) {
			subjects = append(subjects, Changes(k.Name+".>"))
		}
	}
	return subjects
}

// nodeAccount is the account of a node.
func nodeAccount(node string) string { return "NODE_" + node }

// answers is the subject on which the agent of a node answers questions about the output of pods.
func answers(node string) string { return rpc.LogSubject(train.NodeID(node)) }

// nodeExports are the subjects that the account of the services gives to those of nodes, for any node.
func nodeExports(nodes []string) (lines []string) {
	if len(nodes) == 0 {
		return nil
	}
	accounts := make([]string, len(nodes))
	for i, node := range nodes {
		accounts[i] = nodeAccount(node)
	}
	direct, reports := nodeWriting("*")
	for i, subject := range reports {
		reports[i] = ReportPrefix + "*." + subject
	}
	for _, subject := range republishedToNodes() {
		lines = append(lines, fmt.Sprintf("{stream: %q, accounts: [%s]}", subject, strings.Join(accounts, ", ")))
	}
	for _, subject := range nodeReading() {
		// A direct request for several messages has several answers. The server remembers for two minutes where to send
		// them, and for a single answer only until it is sent.
		lines = append(lines, fmt.Sprintf("{service: %q, response: stream, accounts: [%s]}", subject, strings.Join(accounts, ", ")))
	}
	for _, subject := range append(direct, reports...) {
		lines = append(lines, fmt.Sprintf("{service: %q, response: singleton, accounts: [%s]}", subject, strings.Join(accounts, ", ")))
	}
	return lines
}

// writeNodeAccount writes the account of a node whose agent has this public key.
func writeNodeAccount(b *strings.Builder, node, public string) {
	p := NodePermissions(node)
	fmt.Fprintf(b, "  %s {\n    limits: {max_connections: %d, max_subscriptions: %d}\n", nodeAccount(node), nodeConnections, nodeSubscriptions)
	fmt.Fprintf(b, "    users: [{nkey: %s, permissions: {\n      publish: {allow: [%s]}\n      subscribe: [%s]\n      allow_responses: true\n    }}]\n", public, quoted(p.Publish), quoted(append(p.Subscribe, answers(node))))
	fmt.Fprintf(b, "    exports: [{service: %q, accounts: [%s]}]\n    imports: [\n", answers(node), Account)
	for _, subject := range republishedToNodes() {
		fmt.Fprintf(b, "      {stream: {account: %s, subject: %q}}\n", Account, subject)
	}
	direct, reports := nodeWriting(node)
	for _, subject := range append(nodeReading(), direct...) {
		fmt.Fprintf(b, "      {service: {account: %s, subject: %q}}\n", Account, subject)
	}
	for _, subject := range reports {
		fmt.Fprintf(b, "      {service: {account: %s, subject: %q}, to: %q}\n", Account, ReportPrefix+node+"."+subject, subject)
	}
	fmt.Fprintf(b, "    ]\n  }\n")
}
