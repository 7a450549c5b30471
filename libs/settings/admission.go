package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/switchyard-dl/switchyard/libs/config"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Admission configures who may submit what.
type Admission struct {
	AllowRoots     []string
	KeepRecords    time.Duration
	IdentityUser   string
	IdentityTenant string
	TrustBodies    bool
	MaxArray       int
	Notify         Notify
	MLflow         MLflow
	Tracing        Tracing
	// RunAs is the setting of the executor.
	RunAs *string
}

// AsSubmitters reports whether jobs run as the users who submit them.
func (c *Admission) AsSubmitters() bool { return c.RunAs != nil && *c.RunAs == RunAsSubmitter }

// AsSubmitters reports whether jobs run as the users who submit them.
func (c *NodeAgent) AsSubmitters() bool { return c.RunAs != nil && *c.RunAs == RunAsSubmitter }

// MLflow is the tracking server that gets a copy of each job's metrics as a run.
type MLflow struct{ URI, Experiment, Token string }

// Tracing is the collector of OpenTelemetry that gets a trace of each job.
type Tracing struct{ Endpoint, Authorization string }

// MaxNameLength bounds the names of users and tenants, in characters.
const MaxNameLength = 63

// Declare declares the section admission.
func (c *Admission) Declare(set *config.Set) {
	s := set.Section(AdmissionSection, "Admission accepts or refuses jobs, and keeps the register of jobs.")
	s.Strings(&c.AllowRoots, "allow-root", defaultRoots(), "folder below which jobs may have their folders; the flag, repeatable, and the variable add to this list").As("allow_roots").Flag().Adds().
		Shown("home, temporary folder, /data, /home, /mnt, /srv").Check(func() error {
		for _, root := range c.AllowRoots {
			if err := absolute(root); err != nil {
				return fmt.Errorf("%q: %w", root, err)
			}
		}
		return nil
	})
	s.Duration(&c.KeepRecords, "keep-records", 90*24*time.Hour, "how long the register and the ledger keep a job that has ended (0: for ever)").Check(func() error {
		if least := factsAge(); c.KeepRecords != 0 && c.KeepRecords < least {
			return fmt.Errorf("want 0, or %s at least: the facts of jobs are kept for so long", least)
		}
		return nil
	})
	s.String(&c.IdentityUser, "identity-user", installation.CurrentUser(), "user of every submission").Shown("the user of the process").
		Check(func() error { return name(c.IdentityUser) })
	s.String(&c.IdentityTenant, "identity-tenant", "default", "tenant of every submission").Check(func() error { return name(c.IdentityTenant) })
	s.Bool(&c.TrustBodies, "trust-bodies", false,
		"take user and tenant from a submission that names them: only for users who trust each other, since anybody can then submit as anybody")
	s.Int(&c.MaxArray, "max-array", 1000, "largest number of jobs of an array").Check(func() error {
		if c.MaxArray < 1 || c.MaxArray > train.MostMembers {
			return fmt.Errorf("want 1 to %d", train.MostMembers)
		}
		return nil
	})
	c.Notify.declare(s)
	s.String(&c.MLflow.URI, "mlflow-uri", "", "MLflow tracking server to which jobs are mirrored, such as http://mlflow:5000 (empty: none)").Check(func() error {
		if c.MLflow.URI == "" {
			return nil
		}
		return webURL(c.MLflow.URI)
	})
	s.String(&c.MLflow.Experiment, "mlflow-experiment", "switchyard", "MLflow's experiment of jobs without a project; others go to the experiment with the name of their project")
	s.String(&c.MLflow.Token, "mlflow-token", "", "token for the MLflow tracking server, sent as bearer").Secret()
	s.String(&c.Tracing.Endpoint, "otlp-endpoint", "", "collector of OpenTelemetry that gets a trace of each job by OTLP/HTTP, such as http://collector:4318 (empty: none)").Check(func() error {
		if c.Tracing.Endpoint == "" {
			return nil
		}
		return webURL(c.Tracing.Endpoint)
	})
	s.String(&c.Tracing.Authorization, "otlp-authorization", "", "header Authorization for the collector, such as Bearer TOKEN").Secret()
}

// factsAge is how long the facts of jobs are kept.
func factsAge() time.Duration {
	for _, s := range event.Streams() {
		if s.Name == event.StreamJobs {
			return s.MaxAge
		}
	}
	return 0
}

func name(text string) error {
	n := utf8.RuneCountInString(text)
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if n < 1 || n > MaxNameLength || !utf8.ValidString(text) || strings.ContainsFunc(text, unprintable) {
		return fmt.Errorf("want 1 to %d printable characters", MaxNameLength)
	}
	return nil
}

// defaultRoots are the folders where people keep code, data and results.
func defaultRoots() []string {
	roots := []string{"/data", "/home", "/mnt", "/srv", filepath.Clean(os.TempDir())}
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) && filepath.Clean(home) != "/" {
		roots = append(roots, filepath.Clean(home))
	}
	return roots
}
