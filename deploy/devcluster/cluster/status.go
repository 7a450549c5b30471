package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// processes are the programs that were started, running or not, by name.
func (c *Cluster) processes() map[string]process {
	found := map[string]process{}
	names, _ := filepath.Glob(c.path(runDir, "*.json")) // the pattern is well formed
	for _, name := range names {
		program := strings.TrimSuffix(filepath.Base(name), ".json")
		if p, err := c.readProcess(program); err == nil {
			found[program] = p
		}
	}
	return found
}

// dead lists the programs that were started and have ended by themselves.
func (c *Cluster) dead() []string {
	var names []string
	for program, p := range c.processes() {
		if p.PID != 0 && !p.alive() {
			names = append(names, program)
		}
	}
	slices.Sort(names)
	return names
}

// Running tells whether any of the cluster's programs runs.
func (c *Cluster) Running() bool {
	for _, p := range c.processes() {
		if p.alive() {
			return true
		}
	}
	return false
}

// Stop ends one program until Start; its pods and data stay.
func (c *Cluster) Stop(program string) error {
	p, err := c.readProcess(program)
	if err != nil {
		return err
	}
	if err := p.stop(patience); err != nil {
		return fmt.Errorf("stop %s: %w", program, err)
	}
	// A program without a number was stopped on purpose.
	return c.writeProcess(program, process{Args: p.Args})
}

// Start runs a program of the cluster that has ended, as it ran before.
func (c *Cluster) Start(program string) error {
	p, err := c.readProcess(program)
	if err != nil {
		return err
	}
	if p.alive() {
		return nil
	}
	if program == NodeHolder {
		return fmt.Errorf("start %s: the node lives and ends with it: start the cluster again", program)
	}
	return c.start(program, p.Args)
}

// Status writes what runs and which nodes there are; it tells whether every program runs.
func (c *Cluster) Status(ctx context.Context, out io.Writer) (bool, error) {
	all := true
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PROGRAM\tSTATE\tPROCESS\tLOG")
	processes := c.processes()
	names := make([]string, 0, len(processes))
	for program := range processes {
		names = append(names, program)
	}
	slices.Sort(names)
	for _, program := range names {
		p, state := processes[program], "running"
		if !p.alive() {
			state, all = "ended", false
			if p.PID == 0 {
				state = "stopped"
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", program, state, p.PID, c.LogFile(program))
	}
	if err := table.Flush(); err != nil {
		return false, fmt.Errorf("write status: %w", err)
	}
	fmt.Fprintf(out, "\nexport KUBECONFIG=%s\nAPI server: %s\n", c.Kubeconfig(), c.APIServerURL())
	if c.Node {
		fmt.Fprintf(out, "%s: %s, kubelet folder %s; it and its pods reach this machine as %s\n",
			NodeName, c.nodeAddress(), c.private("/var/lib/kubelet"), c.HostAddress())
	}
	client, err := c.Client()
	if err != nil {
		return false, err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(out, "nodes: %v\n", err)
		return false, nil
	}
	ready := 0
	for i := range nodes.Items {
		if takesPods(&nodes.Items[i]) {
			ready++
		}
	}
	fmt.Fprintf(out, "nodes: %d, %d of them ready\n", len(nodes.Items), ready)
	return all && len(names) > 0, nil
}

// tail is the end of a log, for a message.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	const lines = 8
	all := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
