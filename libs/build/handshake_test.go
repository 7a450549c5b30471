package build_test

import (
	"errors"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/contract"
)

func TestWhoHasToBeUpgraded(t *testing.T) {
	t.Parallel()
	mine := contract.Build{Version: "v1.2.0", Events: 1, Records: 2}
	for name, c := range map[string]struct {
		theirs contract.Build
		want   string
	}{
		"the same":           {contract.Build{Version: "v1.3.0", Events: 1, Records: 2}, ""},
		"newer records":      {contract.Build{Version: "v2.0.0", Events: 1, Records: 3}, "versions differ: this is switchyard v1.2.0, which speaks facts v1 and records v2; the bus speaks facts v1 and records v3, as switchyard v2.0.0 does: upgrade this program"},
		"newer facts":        {contract.Build{Version: "v2.0.0", Events: 2, Records: 2}, "versions differ: this is switchyard v1.2.0, which speaks facts v1 and records v2; the bus speaks facts v2 and records v2, as switchyard v2.0.0 does: upgrade this program"},
		"older":              {contract.Build{Version: "v0.9.0", Events: 1, Records: 1}, "versions differ: this is switchyard v1.2.0, which speaks facts v1 and records v2; the bus speaks facts v1 and records v1, as switchyard v0.9.0 does: upgrade the bus, or use switchyard v0.9.0 here"},
		"without a version":  {build.First("before v0.1.0"), "versions differ: this is switchyard v1.2.0, which speaks facts v1 and records v2; the bus speaks facts v1 and records v1, as switchyard before v0.1.0 does: upgrade the bus, or use switchyard before v0.1.0 here"},
		"of the same source": {mine, ""},
	} {
		err := build.Agree(mine, c.theirs, "the bus")
		if (err == nil) != (c.want == "") || err != nil && (err.Error() != c.want || !errors.Is(err, build.ErrOther)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
