package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

func newCluster(t *testing.T) *Cluster {
	t.Helper()
	c := &Cluster{Dir: t.TempDir(), Config: Config{Index: 7, Node: true, FakeNodes: 2, FakeGPUs: 3, FakeGPUUnits: 16, Executable: "/bin/devcluster"}}
	c.Address = c.nodeAddress()
	c.Ports = Ports{APIServer: 6443}
	for _, dir := range []string{runDir, pkiDir, logsDir, filepath.Join(confDir, "cni")} {
		if err := os.MkdirAll(c.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestCertificatesAreOfOneAuthority(t *testing.T) {
	c := newCluster(t)
	ca, err := c.writeCertificates()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.writeKubeconfigs(ca); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	data, err := os.ReadFile(c.path(pkiDir, "apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	server := certificate(t, data)
	for _, name := range []string{"10.203.7.2", "10.205.7.1", "127.0.0.1", "kubernetes.default.svc"} {
		if _, err := server.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("the API server's certificate as %s: %v", name, err)
		}
	}
	config, err := clientcmd.LoadFromFile(c.path(programKubeconfig(Kubelet)))
	if err != nil {
		t.Fatal(err)
	}
	node := certificate(t, config.AuthInfos["system:node:node1"].ClientCertificateData)
	if _, err := node.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("the kubelet's certificate: %v", err)
	}
	if got := node.Subject.Organization; len(got) != 1 || got[0] != "system:nodes" {
		t.Errorf("the kubelet is of %v: the Node authorizer wants system:nodes alone", got)
	}
}

func certificate(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("no certificate in %q", data)
	}
	found, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestConfigurationFilesAreWellFormed(t *testing.T) {
	c := newCluster(t)
	if err := c.writeConfigs(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"kubelet.yaml", "kube-scheduler.yaml", "kube-proxy.yaml", "cni/pods.conflist", "kwok.yaml", "containerd.toml"} {
		data, err := os.ReadFile(c.path(confDir, file))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("<%")) || bytes.Contains(data, []byte("no value")) {
			t.Errorf("%s is not filled:\n%s", file, data)
		}
		if filepath.Ext(file) == ".toml" {
			continue
		}
		for part := range strings.SplitSeq(string(data), "\n---\n") {
			var value map[string]any
			if err := yaml.UnmarshalStrict([]byte(part), &value); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

func TestImageNamesItsLayer(t *testing.T) {
	dir := t.TempDir()
	binary, extra := filepath.Join(dir, "trainer"), filepath.Join(dir, "extra")
	for path, mode := range map[string]os.FileMode{binary: 0o755, extra: 0o640} {
		if err := os.WriteFile(path, []byte(path), mode); err != nil {
			t.Fatal(err)
		}
	}
	var archive bytes.Buffer
	image := Image{Name: "localhost/trainer:dev", Binary: binary, Files: map[string]string{"/etc/extra": extra}}
	if err := image.Write(&archive); err != nil {
		t.Fatal(err)
	}
	files := untar(t, &archive)
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	var config struct {
		Config struct{ Entrypoint []string }
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(files[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	layer := files[manifest[0].Layers[0]]
	sum := sha256.Sum256(layer)
	if want := "sha256:" + hex.EncodeToString(sum[:]); config.Rootfs.DiffIDs[0] != want {
		t.Errorf("layer is %s, not %s", config.Rootfs.DiffIDs[0], want)
	}
	if manifest[0].RepoTags[0] != image.Name || config.Config.Entrypoint[0] != "/trainer" {
		t.Errorf("image %v with entry point %v", manifest[0].RepoTags, config.Config.Entrypoint)
	}
	inside := untar(t, bytes.NewReader(layer))
	if string(inside["trainer"]) != binary || string(inside["etc/extra"]) != extra {
		t.Errorf("the layer holds %q", inside)
	}
}

func untar(t *testing.T, in io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	archive := tar.NewReader(in)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name], err = io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestProcessIsNotMistaken(t *testing.T) {
	sleeper := exec.CommandContext(t.Context(), "sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	ticks, _, err := processStat(sleeper.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p := process{PID: sleeper.Process.Pid, StartTicks: ticks}
	if !p.alive() {
		t.Error("a process that runs is not alive")
	}
	if (process{PID: p.PID, StartTicks: ticks + 1}).alive() {
		t.Error("a process that began at another time is taken for ours")
	}
	if err := p.stop(patience); err != nil {
		t.Error(err)
	}
	// Nobody has collected it yet.
	if p.alive() {
		t.Error("a process that has ended is alive")
	}
	if err := sleeper.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
}

func TestStoppedProgramIsNotDead(t *testing.T) {
	c := newCluster(t)
	c.Node = false
	if err := c.start("sleeper", []string{"sleep", "600"}); err != nil {
		t.Fatal(err)
	}
	if dead := c.dead(); len(dead) > 0 || !c.Running() {
		t.Errorf("dead at once: %v", dead)
	}
	p, err := c.readProcess("sleeper")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.stop(patience); err != nil {
		t.Fatal(err)
	}
	if dead := c.dead(); len(dead) != 1 || c.Running() {
		t.Errorf("dead after its end: %v", dead)
	}
	if err := c.Stop("sleeper"); err != nil {
		t.Fatal(err)
	}
	if dead := c.dead(); len(dead) > 0 {
		t.Errorf("dead after it was stopped: %v", dead)
	}
	if err := c.Start("sleeper"); err != nil {
		t.Fatal(err)
	}
	if !c.Running() {
		t.Error("it does not run again")
	}
	if err := c.Start("nobody"); !errors.Is(err, ErrUnknownProgram) {
		t.Errorf("start of an unknown program: %v", err)
	}
	if err := c.save(); err != nil {
		t.Fatal(err)
	}
	own := c.path("notes.txt")
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Down(); err != nil {
		t.Fatal(err)
	}
	if c.Running() {
		t.Error("it runs after the cluster's end")
	}
	left, err := os.ReadDir(c.Dir)
	if err != nil || len(left) != 1 || left[0].Name() != "notes.txt" {
		t.Errorf("the folder holds %v (%v): want what is not the cluster's, and that alone", left, err)
	}
}

func TestFakeNodeShowsItsGPUs(t *testing.T) {
	node := newCluster(t).fakeNode(1)
	for _, gpu := range []int{0, 2} {
		if units := node.Status.Allocatable[FakeGPUResource(gpu)]; units.Value() != 16 {
			t.Errorf("GPU %d has %s units", gpu, units.String())
		}
	}
	if _, ok := node.Status.Capacity[FakeGPUResource(3)]; ok || node.Name != "kwok-1" {
		t.Errorf("node %s has a fourth GPU: %v", node.Name, ok)
	}
}

func TestAddressesAreOfTheirNetworks(t *testing.T) {
	c := newCluster(t)
	for address, network := range map[string]string{
		c.HostAddress(): "10.203.7.0/24", c.nodeAddress(): "10.203.7.0/24", c.firstServiceAddress(): c.serviceCIDR(),
	} {
		_, within, err := net.ParseCIDR(network)
		if err != nil || !within.Contains(net.ParseIP(address)) {
			t.Errorf("%s is not in %s (%v)", address, network, err)
		}
	}
}
