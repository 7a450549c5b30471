// Package fit decides whether a submission is well-formed and could ever run on the known machines. It returns every
// reason at once, each with what was wanted and what was found. It does not touch the file system (the shell resolves
// paths) and does not decide when a job runs.
package fit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Identity is the submitter as the service knows it, and the time of the submission.
type Identity struct {
	User   string
	Tenant string
	// UID is the number of the machine's user, if the kernel has named the submitter; else 0.
	UID int
	// TrustBodies accepts the names in a body as they are: for people who trust each other and share one account.
	TrustBodies bool
	// At is the time of the submission.
	At time.Time
}

// Inventory is the resources of all machines, lost ones included: they may come back. Without any node nothing is
// infeasible yet.
type Inventory struct {
	Nodes []train.Node
	// ID is the id of the submission.
	ID train.JobID
	// Jobs are the states of the earlier jobs that the spec names in after.
	Jobs map[train.JobID]train.State
	// MaxArray is the largest number of jobs of an array; 0: train.MostMembers.
	MaxArray int
	// Continued is the job that the spec names in continue; nil if it is unknown.
	Continued *train.Job
	Means     Means
	// Bounds are those of the submitter's tenant. Waiting counts its other jobs that wait.
	Bounds  access.Bounds
	Waiting int
	// Taken is a job that has the id of a job of the array that the spec is; empty if there is none.
	Taken train.JobID
	// Admitted says that the job was admitted before: it is changed now, or it came with the array that it is part of.
	Admitted bool
}

// Means are the ways in which people can be notified, besides webhooks.
type Means struct {
	// Commands are the names of the operator's programs.
	Commands []string
	Mail     bool
}

// Paths are the folders and the script of a spec as the shell resolved them.
type Paths struct {
	// Roots are the resolved folders below which a job may have its folders.
	Roots []string
	// WorkDir and the others are zero if the spec does not name them.
	WorkDir      Path
	CustomDir    Path
	SnapshotsDir Path
	DatasetsDir  Path
	// Data is where the data_url leads.
	Data Address
	// Script is the file on this machine that script_path names; zero if it lies in an image.
	Script Path
}

// Address is a data_url in its parts; zero if it is no address.
type Address struct {
	Scheme, Host, Path string
	// Named is set if it has the name of a user, or a password.
	Named bool
	// File is the file or the folder of an address of this machine, and Resolved the address with its links followed.
	File     Path
	Resolved string
}

// Path is one path after following symbolic links.
type Path struct {
	// Resolved is where the path leads. If it could not be followed to its end, Fault says why, and Resolved is where it
	// broke off.
	Resolved string
	Fault    string
	IsFolder bool
	// Hangs is set if its file system does not answer.
	Hangs bool
	// Exposes is set for a folder through which a job would reach the data folder of Switchyard.
	Exposes bool
}

// Verdict is the answer. Without reasons, Spec is ready to be admitted: identity applied, paths resolved, defaults
// filled in.
type Verdict struct {
	Spec    train.Spec
	Reasons []train.Reason
	// Infeasible is set if the job is well-formed but can never run here.
	Infeasible bool
}

// Message returns all reasons in words.
func (v Verdict) Message() string {
	words := make([]string, len(v.Reasons))
	for i, r := range v.Reasons {
		words[i] = r.String()
	}
	return strings.Join(words, "; ")
}

// Limits of a spec.
const (
	MaxNameLength  = 63
	MaxEpochs      = 1_000_000
	MaxSamples     = 1 << 40
	MaxHours       = 100_000
	MaxDeadline    = MaxHours * time.Hour
	MaxMemoryMiB   = 1 << 30
	MaxDevices     = 4096
	MaxCores       = 4096
	MaxRestarts    = 100
	MaxLoss        = 1e12
	MaxPorts       = 64
	MaxLabels      = 32
	MaxAfter       = 100
	MaxBatchSizes  = 32
	MaxNotify      = 16
	FirstNodePort  = 1024
	maxReasons     = 50
	maxCommandSize = 1024
	maxPattern     = 1024
)

// Check returns the verdict on a decoded spec.
func Check(spec train.Spec, who Identity, where Inventory, paths Paths) Verdict {
	c := checker{spec: spec.Expanded(), who: who, where: where, paths: paths, written: map[string]string{}}
	c.shortForms(spec)
	c.identity()
	c.program()
	c.folders()
	c.environment()
	c.secrets()
	c.hints()
	c.batch()
	c.amounts()
	c.devices()
	c.labels("node_labels", "node label", "e.g. gpushare: \"true\"", c.spec.NodeLabels)
	c.labels("labels", "label", "e.g. phase: warmup", c.spec.Labels)
	c.ports()
	c.energy()
	c.after()
	c.continues()
	c.array()
	c.notify()
	c.bounds()
	malformed := len(c.reasons) > 0
	c.feasible()
	v := Verdict{Reasons: bounded(c.reasons), Infeasible: !malformed && len(c.reasons) > 0}
	v.Spec = c.completed()
	return v
}

// checker collects reasons.
type checker struct {
	spec    train.Spec
	who     Identity
	where   Inventory
	paths   Paths
	reasons []train.Reason
	// written has the names under which fields are written in the job, if it has them in a short form.
	written map[string]string
}

func (c *checker) refuse(code, field, hint, format string, args ...any) {
	r := train.Reason{Code: code, Field: cmp.Or(c.written[field], field), Message: fmt.Sprintf(format, args...), Hint: hint}
	if !slices.Contains(c.reasons, r) { // a short form stands for several fields
		c.reasons = append(c.reasons, r)
	}
}

// between refuses a number outside its range.
func (c *checker) between(field string, found, low, high int64, hint string) {
	switch {
	case found < low:
		c.refuse("OutOfRange", field, hint, "want at least %d, found %d", low, found)
	case found > high:
		c.refuse("OutOfRange", field, hint, "want at most %d, found %d", high, found)
	}
}

// bounded keeps the answer to a hostile body small.
func bounded(reasons []train.Reason) []train.Reason {
	if len(reasons) <= maxReasons {
		return reasons
	}
	more := train.Reason{Code: "TooManyProblems", Message: fmt.Sprintf("and %d more problems", len(reasons)-maxReasons)}
	return append(slices.Clone(reasons[:maxReasons]), more)
}

// completed returns the spec with identity, resolved paths and defaults.
func (c *checker) completed() train.Spec {
	s := c.spec
	if s.User == "" {
		s.User = c.who.User
	}
	if s.Tenant == "" {
		s.Tenant = c.who.Tenant
	}
	s.UID = c.who.UID
	replace := func(asked *string, found Path) {
		if *asked != "" && found.Resolved != "" {
			*asked = found.Resolved
		}
	}
	replace(&s.CustomDir, c.paths.CustomDir)
	replace(&s.SnapshotsDir, c.paths.SnapshotsDir)
	replace(&s.DatasetsDir, c.paths.DatasetsDir)
	replace(&s.WorkDir, c.paths.WorkDir)
	s.DataURL = cmp.Or(c.paths.Data.Resolved, s.DataURL)
	if most := c.where.Bounds.Priority; most != nil && s.Priority == nil {
		s.Priority = new(min(train.DefaultPriority, *most))
	}
	return s.WithDefaults().WithGlobalBatch()
}

// bounds refuses what the tenant may not have.
func (c *checker) bounds() {
	tenant := quote(cmp.Or(c.spec.Tenant, c.who.Tenant))
	if most := c.where.Bounds.Priority; most != nil && c.spec.Priority != nil && *c.spec.Priority > *most {
		c.refuse("PriorityTooHigh", "priority", "ask for less, or an operator for more", "want at most %d, which is the highest for tenant %s, found %d", *most, tenant, *c.spec.Priority)
	}
	if most, more := c.where.Bounds.Queued, c.queued(); most != nil && more > 0 && c.where.Waiting+more > *most {
		c.refuse("QueueFull", "", "submit it again once some have started, or ask an operator for more", "want at most %d waiting jobs of tenant %s, found %d and %d more", *most, tenant, c.where.Waiting, more)
	}
}

// queued returns how many jobs more wait if this one is admitted.
func (c *checker) queued() int {
	a, err := train.ParseArray(c.spec.Array)
	switch {
	case c.where.Admitted:
		return 0
	case c.spec.Array != "" && err == nil:
		return len(a.Indices)
	}
	return 1
}
