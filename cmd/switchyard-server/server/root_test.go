package server

import (
	"bytes"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
)

func TestAGroupRefusesWordsThatItDoesNotHave(t *testing.T) {
	root := (&app{&console.Console{}}).root([]string{"switchyard-server"})
	clitest.RefuseUnknownWords(t, root, func(args ...string) (int, string) {
		var out bytes.Buffer
		code := Main(append([]string{"switchyard-server"}, args...), &out, &out)
		return code, out.String()
	})
}
