package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Prerequisites tells what the machine lacks for such a cluster, and how it gets it.
func Prerequisites(options Options) error {
	var problems []error
	if options.FakeNodes > 0 && kwokExecutable(options.Executable) == "" {
		problems = append(problems, errors.New("kwok is missing: GOBIN="+filepath.Dir(options.Executable)+" go install sigs.k8s.io/kwok/cmd/kwok@v0.7.0"))
	}
	if options.Node {
		problems = append(problems, nodePrerequisites(options.Executable)...)
	}
	return errors.Join(problems...)
}

func nodePrerequisites(executable string) []error {
	var problems []error
	if os.Geteuid() != 0 {
		problems = append(problems, errors.New("a real node needs root; --no-kubelet starts a control plane without it"))
	}
	if _, err := os.Stat(pauseExecutable(executable)); err != nil {
		problems = append(problems, fmt.Errorf("%s is missing: make devcluster builds it", pauseExecutable(executable)))
	}
	var packages []string
	for _, need := range []struct{ program, debianPackage string }{
		{"containerd", "containerd"},
		{"ctr", "containerd"},
		{"runc", "runc"},
		{"iptables", "iptables"},
		{"ip", "iproute2"},
		{"nsenter", "util-linux"},
	} {
		if _, err := exec.LookPath(need.program); err != nil {
			packages = append(packages, need.debianPackage)
		}
	}
	if cniBinDir() == "" {
		packages = append(packages, "containernetworking-plugins")
	}
	if len(packages) > 0 {
		packages = slices.Compact(packages)
		problems = append(problems, fmt.Errorf("programs are missing; Debian or Ubuntu: apt-get install %s", strings.Join(packages, " ")))
	}
	if _, err := findHierarchies(); err != nil {
		problems = append(problems, err)
	}
	return problems
}

// cniBinDir is where the network plugins lie: Debian's place, or that of the project's own archives. Empty if they are
// nowhere.
func cniBinDir() string {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir
		}
	}
	return ""
}
