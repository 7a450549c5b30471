package identity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// server names the folder with the files of the servers of the bus.
const server = "bus"

// AccountsName is the file, in a folder of keys, that a nats-server includes.
const AccountsName = server + "/accounts.conf"

// Deployment says what processes on several machines need besides keys.
type Deployment struct {
	// Hosts are names and addresses under which the servers of the bus are reached. With any, the servers and all
	// processes get certificates of one authority.
	Hosts []string
	// Nodes are ids of nodes whose agents get keys of their own, besides those that have one.
	Nodes []string
	// Kubernetes adds a kustomization with a Secret for each process, and the names of the servers there.
	Kubernetes bool
	// Namespace is that of the services there; empty means the one of the manifests.
	Namespace string
}

// Deploy makes everything that processes on several machines need, before any of them runs: keys, accounts, and for
// each process a folder with its own files alone.
func (k Keys) Deploy(d Deployment) error {
	if err := k.Make(); err != nil {
		return err
	}
	for _, node := range d.Nodes {
		if err := k.AddNode(node); err != nil {
			return err
		}
	}
	if err := k.makeSeal(); err != nil {
		return err
	}
	accounts, err := k.Accounts()
	if err == nil {
		err = write(filepath.Join(string(k), AccountsName), []byte(accounts), readable)
	}
	if err != nil {
		return fmt.Errorf("write the accounts: %w", err)
	}
	for _, role := range Roles() {
		if err := k.deploy(role); err != nil {
			return fmt.Errorf("make the folder for %s: %w", role, err)
		}
	}
	if d.Kubernetes {
		d.Hosts = append(slices.Clone(d.Hosts), d.kubernetesHosts()...)
		if err := k.makeNodesSecret(); err != nil {
			return err
		}
	}
	if len(d.Hosts) > 0 {
		if err := k.certify(d.Hosts); err != nil {
			return err
		}
	}
	if d.Kubernetes {
		return k.kustomize(d.namespace())
	}
	return nil
}

// makeSeal makes the key of signatures if there is none: nothing was admitted before.
func (k Keys) makeSeal() error {
	if _, err := k.Seal(); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	seal, err := NewSeal(0)
	if err != nil {
		return err
	}
	return seal.Keep(k)
}

// certify makes a certificate for each role, and one for the servers of the bus.
func (k Keys) certify(hosts []string) error {
	a, err := k.authority()
	if err != nil {
		return err
	}
	for _, role := range Roles() {
		err = errors.Join(err, a.deploy(filepath.Join(string(k), role), role, nil))
	}
	nodes, unknown := k.Nodes()
	err = errors.Join(err, unknown)
	for _, node := range nodes {
		err = errors.Join(err, a.deploy(string(k.OfNode(node)), Node, nil))
	}
	return errors.Join(err, a.deploy(filepath.Join(string(k), server), server, hosts))
}

// deploy copies what a process needs.
func (k Keys) deploy(role string) error {
	files := []string{role + ".nk", rosterName}
	switch role {
	case "admission": // it makes the streams, too
		files = append(files, Operator+".nk", sealName, publicName)
	case "executor":
		files = append(files, publicName)
	}
	return k.copyTo(role, files...)
}

// copyTo copies files into the folder of a process.
func (k Keys) copyTo(process string, files ...string) error {
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(string(k), name))
		if err != nil {
			return err
		}
		if err := write(filepath.Join(string(k), process, name), data, readable); err != nil {
			return err
		}
	}
	return nil
}

// readable is the mode of files that another user of a container may read; outside of it, the folder of keys keeps
// others out.
const readable = 0o644

func write(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, mode)
}
