package identity

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/switchyard-dl/switchyard/libs/installation"
)

// What the agent of a node of Kubernetes asks a server of the bus for, and with which token: TokenAudience is the
// audience of the token that its pod shows, NodeKeyPath where it gets a NodeKey for it.
const (
	TokenAudience = "switchyard-bus"
	NodeKeyPath   = "/v1/node-key"
)

// NodeKey is the key of a node's agent, for a pod that has shown on which node it runs.
type NodeKey struct {
	Node string `json:"node"`
	Seed string `json:"seed"`
}

// nodesSecretName is the file, in the folder of the servers of the bus, from which the keys of all nodes follow.
const nodesSecretName = "nodes.secret"

// Cluster has the keys of the nodes of a cluster, whose names nobody has to know before: they follow from a secret of
// the servers of the bus.
type Cluster struct {
	roster *Roster
	secret []byte
}

// Cluster reads the folder of the servers of the bus.
func (k Keys) Cluster() (*Cluster, error) {
	roster, err := k.Roster()
	if err != nil {
		return nil, err
	}
	secret, err := os.ReadFile(filepath.Join(string(k), nodesSecretName))
	if err != nil {
		return nil, fmt.Errorf("read the secret of the keys of nodes (switchyard bus accounts --kubernetes makes it): %w", err)
	}
	return &Cluster{roster, secret}, nil
}

// makeNodesSecret makes the secret of the servers of the bus if there is none, and gives them the public keys of the
// roles.
func (k Keys) makeNodesSecret() error {
	path := filepath.Join(string(k), server, nodesSecretName)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := write(path, []byte(rand.Text()+rand.Text()), readable); err != nil {
			return fmt.Errorf("make the secret of the keys of nodes: %w", err)
		}
	}
	return k.copyTo(server, rosterName)
}

// pair returns the key of a node's agent.
func (c *Cluster) pair(node string) (nkeys.KeyPair, error) {
	if !isNodeName(node) {
		return nil, fmt.Errorf("node %.80q: want 1 to 64 letters, digits, '-' or '_'", node)
	}
	raw, err := hkdf.Key(sha256.New, c.secret, nil, "switchyard node "+node, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the key of the node %s: %w", node, err)
	}
	seed, err := nkeys.EncodeSeed(nkeys.PrefixByteUser, raw)
	if err != nil {
		return nil, fmt.Errorf("derive the key of the node %s: %w", node, err)
	}
	return nkeys.FromSeed(seed)
}

// Key returns the key of a node's agent.
func (c *Cluster) Key(node string) (NodeKey, error) {
	pair, err := c.pair(node)
	if err != nil {
		return NodeKey{}, err
	}
	seed, err := pair.Seed()
	return NodeKey{Node: node, Seed: string(seed)}, err
}

// Accounts returns the accounts that a server of the bus needs (Keys.Accounts), with one for each of these nodes. All
// agents are those of nodes: no service nodeagent is let in.
func (c *Cluster) Accounts(nodes []string) (string, error) {
	roles, public := map[string]string{}, map[string]string{}
	for _, role := range Roles() {
		key, known := c.roster.of(role, time.Now())
		if !known {
			return "", fmt.Errorf("the public keys in %s lack that of %s: make the folder of keys again", rosterName, role)
		}
		roles[role] = key
	}
	delete(roles, Agent)
	for _, node := range nodes {
		pair, err := c.pair(node)
		if err == nil {
			public[node], err = pair.PublicKey()
		}
		if err != nil {
			return "", err
		}
	}
	return accounts(roles, public), nil
}

// KeepNode stores the key of a node's agent in the folder, beside the certificate of another one.
func (k Keys) KeepNode(key NodeKey, certified Keys) error {
	if err := os.MkdirAll(string(k), 0o700); err != nil {
		return fmt.Errorf("make the folder of keys: %w", err)
	}
	files := map[string][]byte{Node + ".nk": []byte(key.Seed + "\n")}
	for _, name := range []string{authorityName, certificateName, privateName} {
		data, err := os.ReadFile(filepath.Join(string(certified), name))
		if err != nil {
			return fmt.Errorf("read the certificate for the bus: %w", err)
		}
		files[name] = data
	}
	for name, data := range files {
		if err := installation.WriteFile(filepath.Join(string(k), name), data); err != nil { // mode 0600
			return fmt.Errorf("keep the key of the node: %w", err)
		}
	}
	return nil
}
