package build

import (
	"errors"
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// ErrOther means that two programs speak different versions of facts or records.
var ErrOther = errors.New("versions differ")

// Agree returns nil if two programs speak the same facts and records, else an ErrOther that says which of them has to
// be upgraded. peer names the other program.
func Agree(mine, theirs contract.Build, peer string) error {
	if speech(mine) == speech(theirs) {
		return nil
	}
	do := "upgrade this program"
	if !Newer(theirs, mine) {
		do = fmt.Sprintf("upgrade %s, or use switchyard %s here", peer, theirs.Version)
	}
	return fmt.Errorf("%w: this is switchyard %s, which speaks %s; %s speaks %s, as switchyard %s does: %s",
		ErrOther, mine.Version, speech(mine), peer, speech(theirs), theirs.Version, do)
}

// Newer reports whether a program speaks facts or records that another one does not know.
func Newer(b, than contract.Build) bool { return b.Events > than.Events || b.Records > than.Records }

// First returns what a program speaks that says nothing about it: the first versions of all.
func First(version string) contract.Build {
	return contract.Build{Version: version, Events: 1, Records: 1}
}

func speech(b contract.Build) string {
	return fmt.Sprintf("facts v%d and records v%d", b.Events, b.Records)
}
