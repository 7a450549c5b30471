// Package units has the files that make a machine a server for several people: two units of systemd and a
// configuration. `switchyard install` writes them, and packages for deb and rpm contain them.
package units

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/installation"
)

// The names and paths that all installations share.
const (
	ConfigPath = "/etc/switchyard/switchyard.yaml"
	// KeyPath has the public key by which the launcher knows what admission has signed.
	KeyPath  = "/etc/switchyard/admission.pub"
	JobsDir  = "/var/lib/switchyard-jobs"
	DataDir  = "/var/lib/switchyard"
	User     = "switchyard"
	Service  = "switchyard.service"
	Launcher = "switchyard-launcher.service"
	// LocalUnits is the folder of the units of `switchyard install`; a package has its own.
	LocalUnits = "/etc/systemd/system"
)

// Place is where an installation has its parts, and whose they are.
type Place struct {
	// Programs, Library and Units are the folders of the programs, of the Python packages of jobs, and of the units.
	Programs, Library, Units string
	// User is that of the service, Group the one whose members may use it (empty: everybody), Data the service's folder.
	User, Group, Data string
	// JobDisk is how many GiB the own folders of a job may take together, by project quotas (0: any).
	JobDisk int
}

// Packaged is the place of what a package brings.
func Packaged() Place {
	return Place{Programs: "/usr/bin", Library: "/usr/lib/switchyard/python", Units: "/usr/lib/systemd/system", User: User, Data: DataDir}
}

// File is a file of an installation.
type File struct{ Path, Text string }

// The units, with the names of what a place fills in between @.
var (
	//go:embed switchyard.service
	serviceText string
	//go:embed switchyard-launcher.service
	launcherText string
)

// Services returns both units. They may be stopped and started at any time: jobs are in control groups of their own,
// and run on.
func (p Place) Services() []File {
	return []File{
		{filepath.Join(p.Units, Service), p.Fill(serviceText)},
		{filepath.Join(p.Units, Launcher), p.Fill(launcherText)},
	}
}

// capabilities are the rights of the launcher, quotaCapability is what the kernel wants of who sets quotas.
const (
	capabilities    = "CAP_SETUID CAP_SETGID CAP_CHOWN CAP_FOWNER CAP_FSETID CAP_DAC_OVERRIDE CAP_KILL"
	quotaCapability = "CAP_SYS_ADMIN"
)

// Fill replaces the names between @ in a text.
func (p Place) Fill(text string) string {
	rights, bound := capabilities, ""
	if p.JobDisk > 0 {
		rights, bound = rights+" "+quotaCapability, fmt.Sprintf(" --job-disk %d", p.JobDisk)
	}
	return strings.NewReplacer(
		"@PROGRAMS@", p.Programs, "@CONFIG@", ConfigPath,
		"@USER@", p.User, "@GROUP@", p.Group, "@DATA@", p.Data, "@STATE@", stateName(p.Data),
		"@JOBS@", JobsDir, "@KEY@", KeyPath, "@LIBRARY@", p.Library,
		"@CAPABILITIES@", rights, "@JOB_DISK@", bound, "@SERVICE@", Service, "@LAUNCHER@", Launcher,
	).Replace(text)
}

// stateName returns the StateDirectory of a data folder, which systemd makes if it lies in /var/lib.
func stateName(dataDir string) string {
	if name, below := strings.CutPrefix(dataDir, "/var/lib/"); below {
		return name
	}
	return ""
}

// Config returns the configuration to begin with, which is the administrator's from then on.
func (p Place) Config() File {
	group := ""
	if p.Group != "" {
		group = ", shared_group: " + p.Group
	}
	return File{ConfigPath, fmt.Sprintf(`# docs/configuration.md lists every setting; switchyard config check %s says what is wrong.
data: {dir: %s}
process: {http: "127.0.0.1:9100"}
executor: {run_as: submitter, python_path: %s}
web: {shared_socket: %s%s}
`, ConfigPath, p.Data, p.Library, installation.SharedSocket, group)}
}
