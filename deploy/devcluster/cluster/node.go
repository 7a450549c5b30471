package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// maxIndex bounds the clusters of one machine by the third byte of their addresses.
const maxIndex = 254

// makeNode makes the namespaces of the node: mounts of its own, so that its folders and containers' mounts are nobody
// else's and end with it, and a network of its own, with one wire to this machine.
func (c *Cluster) makeNode() error {
	if err := c.makePrivateDirs(); err != nil {
		return err
	}
	if err := c.makeCgroups(); err != nil {
		return err
	}
	if err := c.startHolder(); err != nil {
		return err
	}
	holder, err := c.readProcess(NodeHolder)
	if err != nil {
		return err
	}
	inside := []string{"nsenter", "-t", strconv.Itoa(holder.PID), "-n", "--"}
	steps := [][]string{
		{"ip", "link", "set", c.nodeLink(), "netns", strconv.Itoa(holder.PID)},
		{"ip", "address", "add", c.HostAddress() + "/24", "dev", c.hostLink()},
		{"ip", "link", "set", c.hostLink(), "up"},
		append(inside, "ip", "link", "set", "lo", "up"),
		append(inside, "ip", "address", "add", c.nodeAddress()+"/24", "dev", c.nodeLink()),
		append(inside, "ip", "link", "set", c.nodeLink(), "up"),
		append(inside, "ip", "route", "add", "default", "via", c.HostAddress()),
		{"ip", "route", "add", c.podCIDR(), "via", c.nodeAddress()},
		{"ip", "route", "add", c.serviceCIDR(), "via", c.nodeAddress()},
	}
	for _, step := range steps {
		if err := command(step...); err != nil {
			return err
		}
	}
	return nil
}

// claimIndex takes the first number that no cluster of this machine has: the kernel gives a link's name once.
func (c *Cluster) claimIndex() error {
	var err error
	for c.Index = range maxIndex {
		err = command("ip", "link", "add", c.hostLink(), "type", "veth", "peer", "name", c.nodeLink())
		if err == nil {
			// A process that is killed between these two leaves a link that nobody removes, and its number unused: harmless.
			return command("ip", "link", "set", c.hostLink(), "alias", c.Dir)
		}
	}
	return fmt.Errorf("find a free number for the cluster: %w", err)
}

// madeMark lies in a mount point that a cluster made, so that whichever cluster of the machine ends last takes it away.
const madeMark = ".made-by-switchyard-devcluster"

// ownsLink tells whether the link of the cluster's number is still this cluster's.
func (c *Cluster) ownsLink() bool {
	alias, err := os.ReadFile("/sys/class/net/" + c.hostLink() + "/ifalias")
	return err == nil && strings.TrimSpace(string(alias)) == c.Dir
}

// makePrivateDirs makes what lies behind the private paths, and the mount points where the machine has none.
func (c *Cluster) makePrivateDirs() error {
	for _, path := range privatePaths() {
		if err := os.MkdirAll(c.private(path), 0o755); err != nil {
			return fmt.Errorf("make private folder: %w", err)
		}
		err := os.Mkdir(path, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("make mount point: %w", err)
		}
		if err := os.WriteFile(filepath.Join(path, madeMark), nil, 0o644); err != nil {
			return fmt.Errorf("mark mount point: %w", err)
		}
	}
	return nil
}

// startHolder starts the process in whose namespaces the node lives and waits until its mounts are made.
func (c *Cluster) startHolder() error {
	ready, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer func() {
		_ = ready.Close()
		_ = theirs.Close()
	}()
	args := []string{c.Executable, NodeHolder, "--dir", c.Dir}
	command, closeLog, err := c.command(NodeHolder, args)
	if err != nil {
		return err
	}
	defer closeLog()
	command.ExtraFiles = []*os.File{theirs}
	command.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWNET
	if err := c.launch(NodeHolder, args, command); err != nil {
		return err
	}
	// As long as this end is open here, the holder's death is not seen.
	_ = theirs.Close()
	if line, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		return fmt.Errorf("make the node's namespaces: %w (%q); see %s", err, line, c.LogFile(NodeHolder))
	}
	return nil
}

// HoldNode is what the holder does in its new namespaces: it makes the node's mounts, reports that, and stays until
// stop is closed.
func (c *Cluster) HoldNode(ready io.WriteCloser, stop <-chan struct{}) error {
	defer ready.Close()
	// What this machine mounts later is seen inside; nothing of the inside is seen here. Inside it is shared, as kubelets
	// ask it to be.
	for _, propagation := range []uintptr{syscall.MS_SLAVE, syscall.MS_SHARED} {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|propagation, ""); err != nil {
			return fmt.Errorf("set propagation of mounts: %w", err)
		}
	}
	for _, path := range privatePaths() {
		if err := syscall.Mount(c.private(path), path, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount private %s: %w", path, err)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("let the node forward: %w", err)
	}
	// Without it a pod does not reach itself or its neighbours through a Service; the module may be absent.
	if err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("let bridges ask iptables: %w", err)
	}
	if _, err := fmt.Fprintln(ready, "ready"); err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	ready.Close()
	<-stop
	return nil
}

// inNode gives the command line that runs args in the cluster's control group and the node's namespaces, under the same
// process number. The holder itself comes before the namespaces.
func (c *Cluster) inNode(args []string) ([]string, error) {
	if !c.Node {
		return args, nil
	}
	found, err := findHierarchies()
	if err != nil {
		return nil, err
	}
	placed := []string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, found.systemProcs(c.cgroupName())}
	if args[1] != NodeHolder {
		enter, err := c.enter()
		if err != nil {
			return nil, err
		}
		placed = append(placed, enter...)
	}
	return append(placed, args...), nil
}

// enter is the command that enters the node's namespaces.
func (c *Cluster) enter() ([]string, error) {
	holder, err := c.readProcess(NodeHolder)
	if err != nil {
		return nil, err
	}
	if !holder.alive() {
		return nil, errors.New("the node's namespaces are gone: start the cluster again")
	}
	return []string{"nsenter", "-t", strconv.Itoa(holder.PID), "-m", "-n", "--"}, nil
}

// removeMadeDirs takes away the mount points that were made for clusters, as long as no other node has mounted over
// them: removing a mount point would take that mount away.
func removeMadeDirs() error {
	for _, path := range privatePaths() {
		mark := filepath.Join(path, madeMark)
		if _, err := os.Stat(mark); err != nil {
			continue
		}
		mounted, err := mountedAnywhere(path)
		if err != nil {
			return err
		}
		if mounted {
			continue
		}
		if err := os.Remove(mark); err != nil {
			return fmt.Errorf("remove mount point: %w", err)
		}
		// A folder that is not empty belongs to another program.
		if err := syscall.Rmdir(path); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
			return fmt.Errorf("remove mount point %s: %w", path, err)
		}
	}
	return nil
}

// mountedAnywhere tells whether something is mounted on path in any process's namespace.
func mountedAnywhere(path string) (bool, error) {
	tables, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		return false, fmt.Errorf("list processes: %w", err)
	}
	for _, table := range tables {
		// A process that has ended mounts nothing.
		data, _ := os.ReadFile(table)
		for line := range strings.Lines(string(data)) {
			if fields := strings.Fields(line); len(fields) > 4 && fields[4] == path {
				return true, nil
			}
		}
	}
	return false, nil
}

// command runs a program of the machine to its end.
func command(args ...string) error {
	output, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}

// Enter gives the program and arguments that run args inside the node.
func (c *Cluster) Enter(args []string) (string, []string, error) {
	if !c.Node {
		return "", nil, errors.New("this cluster has no real node")
	}
	enter, err := c.enter()
	if err != nil {
		return "", nil, err
	}
	path, err := exec.LookPath(enter[0])
	if err != nil {
		return "", nil, fmt.Errorf("find %s: %w", enter[0], err)
	}
	return path, append(enter, args...), nil
}
