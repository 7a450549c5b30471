package executor

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/settings"
)

func TestRootNeedsAWordWhereOthersLogIn(t *testing.T) {
	keys := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(keys, ".ssh"), 0o700), os.WriteFile(filepath.Join(keys, ".ssh", "authorized_keys"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	const system = "root:x:0:0::/root:/bin/bash\ndaemon:x:1:1::/:/usr/sbin/nologin\nnobody:x:65534:65534::/:/bin/sh\n"
	for name, test := range map[string]struct {
		passwd, shadow string
		uid            int
		config         settings.Executor
		refused        bool
	}{
		"a container":                   {passwd: system, shadow: "root:*:::\n"},
		"an image with a user":          {passwd: system + "ubuntu:x:1000:1000::/none:/bin/bash\n", shadow: "ubuntu:!:::\n"},
		"a person with a password":      {passwd: system + "ann:x:1000:1000::/none:/bin/bash\n", shadow: "ann:$y$x:::\n", refused: true},
		"a person with a key":           {passwd: system + "ann:x:1000:1000::" + keys + ":/bin/bash\n", shadow: "ann:!:::\n", refused: true},
		"a person of whom is not known": {passwd: system + "ann:x:1000:1000::/none:/bin/bash\n", refused: true},
		"a service":                     {passwd: system + "slurm:x:1000:1000::/none:/usr/sbin/nologin\n"},
		"allowed":                       {passwd: system + "ann:x:1000:1000::/none:/bin/bash\n", config: settings.Executor{AllowRootJobs: true}},
		"pods":                          {passwd: system + "ann:x:1000:1000::/none:/bin/bash\n", config: settings.Executor{Backend: settings.BackendKubernetes}},
		"an ordinary user":              {passwd: system + "ann:x:1000:1000::/none:/bin/bash\n", uid: 1000},
	} {
		etc := t.TempDir()
		err := os.WriteFile(filepath.Join(etc, "passwd"), []byte(test.passwd), 0o600)
		if test.shadow != "" {
			err = errors.Join(err, os.WriteFile(filepath.Join(etc, "shadow"), []byte(test.shadow), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		if test.config.Backend == "" {
			test.config.Backend = settings.BackendLocal
		}
		var said strings.Builder
		err = allowRoot(test.config, test.uid, etc, slog.New(slog.NewTextHandler(&said, nil)))
		if errors.Is(err, errRoot) != test.refused {
			t.Errorf("%s: %v", name, err)
		}
		quiet := test.refused || test.uid != 0 || test.config.AllowRootJobs || test.config.Backend != settings.BackendLocal
		if (said.Len() == 0) != quiet {
			t.Errorf("%s: it says %q", name, said.String())
		}
	}
}
