package history

import (
	"fmt"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
)

// Redacted stands for what was taken out.
const Redacted = "(redacted)"

// redactFact takes out of a fact's body what may be a secret. No decision rests on any of it.
func redactFact(body any) {
	switch b := body.(type) {
	case *event.Submitted:
		b.Spec = redactSpec(b.Spec)
	case *event.Admitted:
		b.Spec = redactSpec(b.Spec)
	case *event.AttemptLost:
		b.Exit = redactExit(b.Exit)
	case *event.Failed:
		b.Exit = redactExit(b.Exit)
	case *event.CancelRequested:
		b.Reason = ""
	case *event.EditDecided:
		b.Reason, b.Set.Notify = "", nil
	}
}

// redactSpec keeps the names of variables and the program, but not their values and its arguments. The URL of a webhook
// is its password, and an address of data may be a signed one.
func redactSpec(s train.Spec) train.Spec {
	if len(s.Env) > 0 {
		env := make(map[string]string, len(s.Env))
		for name := range s.Env {
			env[name] = Redacted
		}
		s.Env = env
	}
	s.SecretEnv, s.Notify = nil, nil
	if s.DataURL != "" {
		s.DataURL = Redacted
	}
	if n := len(s.Command) - 1; n > 0 {
		s.Command = []string{s.Command[0], fmt.Sprintf("(%d arguments redacted)", n)}
	}
	return s
}

// redactExit drops what the job printed.
func redactExit(e train.Exit) train.Exit {
	e.LogTail, e.Message = "", ""
	return e
}

func redactInput(in decision.Input) decision.Input {
	jobs := slices.Clone(in.State.Jobs)
	for i := range jobs {
		jobs[i].Spec = redactSpec(jobs[i].Spec)
	}
	in.State.Jobs, in.State.Nodes = jobs, redactNodes(in.State.Nodes)
	return in
}

// redactNodes drops where the agents listen.
func redactNodes(nodes []train.Node) []train.Node {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		nodes[i].JobAPI, nodes[i].JobAPISocket = "", ""
	}
	return nodes
}
