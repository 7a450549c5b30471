package fit

import (
	"maps"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// maxSecrets bounds the secret variables of a job.
const maxSecrets = 64

// secrets checks the names of secret variables, and where their values are. Whether they are there is found out where
// the job starts.
func (c *checker) secrets() {
	if n := len(c.spec.SecretEnv); n > maxSecrets {
		c.refuse("OutOfRange", "secret_env", "", "want at most %d variables, found %d", maxSecrets, n)
	}
	for _, name := range slices.Sorted(maps.Keys(c.spec.SecretEnv)) {
		field := "secret_env." + name
		if len(field) > 100 {
			field = field[:100]
		}
		source, err := train.ParseSecret(c.spec.SecretEnv[name])
		_, twice := c.spec.Env[name]
		pods := source.Kind == train.SecretObject
		switch {
		case !train.Identifier(name):
			c.refuse("InvalidVariable", strings.ToValidUTF8(field, ""), "", "want letters, digits and '_', not beginning with a digit; found %s", quote(name))
		case Reserved(name):
			c.refuse("ReservedVariable", field, "leave it out: the job gets it from the scheduler", "the scheduler sets %s", name)
		case twice:
			c.refuse("Contradiction", field, "leave one of them out", "env has a value for %s, too", name)
		case err != nil:
			c.refuse("InvalidSecret", field, "e.g. file:/home/ann/.wandb-key", "%v", err)
		case pods && !slices.ContainsFunc(c.where.Nodes, inCluster):
			c.refuse("NotSupported", field, "name a file: file:/PATH", "no node is one of Kubernetes, which would have the Secret")
		case !pods && c.onlyPods():
			c.refuse("NotSupported", field, "put it into a Secret: secret:NAME/KEY", "all nodes are those of Kubernetes: pods get secrets from there")
		}
	}
}
