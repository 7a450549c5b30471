// Package build says which program this is: its version, and the versions of the facts and records that it speaks.
package build

import (
	"runtime"
	"runtime/debug"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// This returns what the compiler has noted about this program. A build in a clone has the version of its tag, or one of
// its commit; `go install PACKAGE@VERSION` has that version.
func This() contract.Build {
	b := contract.Build{Version: "devel", Platform: runtime.GOOS + "/" + runtime.GOARCH, Records: contract.Version}
	for _, k := range event.Kinds() {
		b.Events = max(b.Events, k.Version)
	}
	info, known := debug.ReadBuildInfo()
	if !known {
		return b
	}
	b.Go = info.GoVersion
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.CommittedAt = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
