// Package doors holds every door of the product against the attacks on it: what listens, and what answers on the bus,
// is found in the code, so that a new door fails here until a test attacks it.
package doors

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// doors are the files that open a door, with the tests that attack it, as folder.Test, or why none does. The requests
// of a door are in a table of their own, which its test reads: api.Routes, the routes of the job API, the acts of the
// launcher, the kinds of facts, the buckets, and the permissions of roles.
func doors() map[string][]string {
	const subjects = "test/system.TestEverySubjectIsAttacked"
	return map[string][]string{
		// The bus, and what is asked over it.
		"libs/busserver/server.go":                 {"test/system.TestNobodyForgesFactsOrRecords", "test/system.TestConnectionsDoNotTakeTheServiceAway", "libs/identity.TestServersAndClientsShowCertificates"},
		"libs/bus/request.go":                      {subjects, "test/system.TestNobodyForgesFactsOrRecords"},
		"libs/bus/poll.go":                         {"libs/identity.TestTheAgentOfANodeSpeaksForItAlone"},
		"libs/bus/cause.go":                        {"libs/identity.TestEachRolePublishesItsOwnAndNothingElse"},
		"libs/bus/relay.go":                        {"test/system.TestAnAgentWorksFromAnAccountOfItsOwn", "libs/identity.TestTheAgentOfANodeSpeaksForItAlone"},
		"cmd/switchyard-server/server/embedded.go": {"libs/identity.TestEachRolePublishesItsOwnAndNothingElse"},
		"services/admission/service.go":            {subjects},
		"services/experiments/service.go":          {subjects, "services/web.TestEveryRouteIsAttacked"},
		"services/executor/service.go":             {subjects, "services/web.TestThePermissionMatrix"},
		"services/executor/terminal.go":            {subjects, "test/system.TestATerminalIsAttachedToAJob"},
		"services/nodeagent/kubernetes.go":         {subjects},
		"services/planner/pods.go":                 {subjects, "services/web/extender.TestAQuestionOfAScheduler"},
		"services/planner/questions.go":            {subjects},
		"services/planner/trial.go":                {subjects, "services/web.TestEveryRouteIsAttacked"},
		"services/profiler/service.go":             {subjects},
		// HTTP, over TCP and Unix sockets.
		"libs/run/process.go":                   {"libs/run.TestProfilesAreForTheOwner"},
		"libs/installation/socket.go":           {"services/web.TestEveryRouteIsAttacked", "services/executor/local/launcher.TestEveryRequestIsAttacked"},
		"services/web/service.go":               {"services/web.TestEveryRouteIsAttacked", "services/web.TestForeignPagesAreRefused", "services/web/extender.TestAQuestionOfAScheduler", "libs/run.TestAPeerHasSoManyConnections"},
		"services/nodeagent/listeners.go":       {"services/nodeagent/jobapi.TestEveryRequestIsAttacked", "services/nodeagent/jobapi.TestBadBodies"},
		"cmd/switchyard-server/kubebus/door.go": {"cmd/switchyard-server/kubebus.TestAnAgentGetsTheKeyOfItsNodeAlone"},
		// Sockets of one machine.
		"services/executor/local/launcher/main.go":    {"services/executor/local/launcher.TestEveryRequestIsAttacked", "test/runas.TestAServerForSeveralPeople"},
		"services/executor/local/attempt/terminal.go": {"test/runas.TestAServerForSeveralPeople"},
		"services/executor/local/supervisor/relay.go": {"test/runas.TestAServerForSeveralPeople"},
		"services/executor/local/horovod/horovod.go":  {"services/executor/local/horovod.TestTheRendezvousIsItsUsers"},
		"services/nodeagent/deviceplugin/serve.go":    {"services/nodeagent/deviceplugin.TestASocketIsRoots"},
		"services/nodeagent/netprobe/socket.go":       {"services/nodeagent/netprobe.TestAProbeIsAnsweredOnceAndForgedOnesNever"},
		"cmd/switchyard-server/netrole/controller.go": {"cmd/switchyard-server/netrole.TestNonsenseIsRefused"},
		"cmd/switchyard-server/netrole/diagnoser.go":  {"cmd/switchyard-server/netrole.TestNonsenseIsRefused"},
		"services/executor/local/prepare/prepare.go":  {"not attacked: it looks for a free port, and closes it"},
		"cmd/switchyard/doctor/survey.go":             {"not attacked: the same"},
	}
}

// opens reports whether a call opens a door: it listens, or answers questions on the bus.
func opens(call *ast.CallExpr) bool {
	var name string
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		name = f.Sel.Name
		from, is := f.X.(*ast.Ident)
		if is && from.Name == "run" && name == "ServeHTTP" {
			return true
		}
		if name == "Answer" && (!is || from.Name != "bus") {
			return false
		}
	case *ast.IndexListExpr:
		if s, is := f.X.(*ast.SelectorExpr); is {
			name = s.Sel.Name
		}
	}
	return slices.Contains([]string{
		"Listen", "ListenPacket", "ListenUnix", "ListenUDP", "ListenTCP", "ListenShared", "ListenAndServe", "ServeListener", "ServePeers",
		"Answer", "AnswerPipes", "AnswerTrouble", "Subscribe", "QueueSubscribe", "ChanQueueSubscribe", "NewServer",
	}, name)
}

const root = "../.."

// each calls f with every Go file of the product, tests or not.
func each(t *testing.T, tests bool, f func(path string)) {
	t.Helper()
	for _, part := range []string{"cmd", "libs", "services", "test"} {
		err := filepath.WalkDir(filepath.Join(root, part), func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && strings.HasSuffix(path, "_test.go") == tests {
				f(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryDoorIsAttacked(t *testing.T) {
	found := map[string]bool{}
	each(t, false, func(path string) {
		name, err := filepath.Rel(root, path)
		file, unread := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil || unread != nil {
			t.Fatal(err, unread)
		}
		if strings.HasPrefix(name, "test/") || strings.HasPrefix(name, "libs/bustest/") || strings.Contains(name, "/clitest/") {
			return // what tests open
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is && opens(call) {
				found[name] = true
			}
			return true
		})
	})
	known := doors()
	for name := range found {
		if _, is := known[name]; !is {
			t.Errorf("%s opens a door, and doors() has no attack on it", name)
		}
	}
	there := map[string]bool{}
	each(t, true, func(path string) {
		text, err := os.ReadFile(path)
		name, unrelated := filepath.Rel(root, filepath.Dir(path))
		if err != nil || unrelated != nil {
			t.Fatal(err, unrelated)
		}
		for line := range strings.Lines(string(text)) {
			if test, is := strings.CutPrefix(line, "func Test"); is {
				test, _, _ = strings.Cut(test, "(")
				there[name+".Test"+test] = true
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if !found[name] {
			t.Errorf("%s opens no door any more: take it out of doors()", name)
		}
		for _, test := range known[name] {
			if !there[test] && !strings.HasPrefix(test, "not attacked: ") {
				t.Errorf("%s: there is no test %s", name, test)
			}
		}
	}
}
