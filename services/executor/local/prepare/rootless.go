package prepare

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/launcher"
)

// The images of people run in podman, which has no service of its own: its processes are the supervisor's, in the user
// namespace, the control groups and the namespace of processes that the launcher has made. So an image gets the rights
// of its user and no others, and ends with its supervisor.

// apiTarget is where a container sees the folder with the socket of the job API: it has a network of its own.
const (
	apiTarget = "/run/switchyard"
	apiSocket = "sock"
)

// apiFolder is the folder of that socket on the machine.
func apiFolder(l installation.Layout, s launch.Setting) string {
	return filepath.Join(l.Own(s.Job), "api")
}

// errPodman says what the images of people need.
var errPodman = errors.New("an image runs as its submitter in podman alone, with crun, which this machine lacks (Debian: apt-get install podman crun)")

// rootless prepares podman for the image of a signed job: variables of its client, its storage, and the image. Images
// that the user has already, or that an earlier job of his fetched, are used; containers are the job's alone.
func (p *Preparer) rootless(s *launch.Setting, l launcher.Start) error {
	podman, err := attempt.LookUp(string(engine.Podman), s.Base)
	if err != nil {
		return errPodman
	}
	for i := range s.Places {
		s.Places[i].Node.ContainerRuntime = filepath.Base(podman)
		s.Places[i].Node.JobAPISocket = filepath.Join(apiTarget, apiSocket)
	}
	kept := filepath.Join(p.Own(s.Job), "podman")
	images, usual, driver := imageStores(s.Base)
	err = errors.Join(installation.MakeFolder(apiFolder(p.Layout, *s)), installation.MakeFolder(kept), installation.MakeFolder(images), installation.MakeFolder(usual))
	if err != nil {
		return err
	}
	own, err := shorten(kept)
	if err != nil {
		return err
	}
	s.Base = append(s.Base, "XDG_RUNTIME_DIR="+own, "TMPDIR="+own,
		"_CONTAINERS_USERNS_CONFIGURED=done", fmt.Sprintf("_CONTAINERS_ROOTLESS_UID=%d", l.User.UID), fmt.Sprintf("_CONTAINERS_ROOTLESS_GID=%d", l.User.GID))
	client := func(args ...string) ([]byte, error) {
		cmd := exec.Command(podman, args...) //nolint:noctx // an image may be large, and a cancelled job ends it
		cmd.Env, cmd.Dir = pairs(chosen(s.Base, ofClient())), own
		return cmd.CombinedOutput()
	}
	if _, err := client(append(podmanFlags(s.Base), "image", "exists", s.Spec.Image)...); err == nil {
		return nil
	}
	if said, err := client("--root", images, "--runroot", shortFolder+"/pull", "--storage-driver", driver, "pull", "--quiet", s.Spec.Image); err != nil {
		return fmt.Errorf("fetch the image %s: %s", s.Spec.Image, engine.LastLine(said))
	}
	return nil
}

// shorten mounts a folder at a short path for this process and what it starts: podman does not accept long paths.
func shorten(dir string) (string, error) {
	const short = shortFolder
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
	if err == nil {
		err = unix.Mount(dir, short, "", unix.MS_BIND, "")
	}
	if err != nil {
		return "", fmt.Errorf("show %s at %s: %w", dir, short, err)
	}
	return short, nil
}

// shortFolder is where podman keeps what it has of a job. A job needs nothing of what others have there.
const shortFolder = "/run/user"

// imageStores returns where jobs of a user have fetched images and where the user has, and how these are stored.
func imageStores(base []string) (images, usual, driver string) {
	home := filepath.Join(attempt.Variable(base, "HOME"), ".local", "share")
	images, usual, driver = filepath.Join(home, "switchyard", "images"), filepath.Join(home, "containers", "storage"), "overlay"
	if installation.Exists(filepath.Join(usual, "vfs-images")) {
		driver = "vfs"
	}
	return images, usual, driver
}

// podmanFlags keep podman to what is the supervisor's.
func podmanFlags(base []string) []string {
	images, usual, driver := imageStores(base)
	return []string{
		"--storage-driver", driver, "--storage-opt", driver + ".imagestore=" + usual, "--storage-opt", driver + ".imagestore=" + images,
		"--runtime", "crun", "--cgroup-manager", "cgroupfs", "--events-backend", "none",
		"--root", shortFolder + "/storage", "--runroot", shortFolder + "/run", "--tmpdir", shortFolder + "/tmp",
	}
}

// rootlessFlags keep the container of a rank in the control groups of its supervisor and off all networks but its
// job's. It reaches the job API by a socket.
func rootlessFlags(s launch.Setting, l installation.Layout, rank int) []string {
	network := "none"
	if rank > 0 {
		network = "container:" + attempt.ContainerName(s.Job, s.Attempt.Number, len(s.Processes()), 0)
	}
	return []string{
		"--pull", "never", "--cgroups", "disabled", "--log-driver", "none", "--group-add", "keep-groups", "--network", network,
		"--volume", apiFolder(l, s) + ":" + apiTarget,
	}
}
