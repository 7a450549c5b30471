// Package identity says who speaks on the bus and what each may say: the roles with a key of their own, their
// permissions, the files of their keys, and the accounts that a nats-server needs for them. The permissions follow
// from the tables of facts and buckets, which name the one publisher and the one writer of each.
package identity

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/rpc"
)

// The roles that are no service.
const (
	// Operator may do everything on the bus. It is the person who owns the data folder, and what makes the streams.
	Operator = "operator"
	// User may publish what anyone may publish, from an account of its own in which nothing else exists.
	User = "user"
)

// Services returns the names of the services, each of which is a role.
func Services() []string {
	return []string{"admission", "energy", "executor", "experiments", "nodeagent", "planner", "profiler", "web"}
}

// Roles returns the names of all roles.
func Roles() []string { return append(Services(), Operator, User) }

// RoleOf returns the role of a connection's name: a service is its own, every other part of Switchyard is the operator.
func RoleOf(name string) string {
	if slices.Contains(Services(), name) {
		return name
	}
	return Operator
}

// InboxPrefix begins the subjects on which a role gets answers. No service can listen on another one's.
func InboxPrefix(role string) string { return "_INBOX." + role }

// Permissions are the subjects on which a role may publish and subscribe.
type Permissions struct{ Publish, Subscribe []string }

// asking are the services that publish what anyone may: for people, for arrays of jobs, and for experiments.
func asking() []string { return []string{"admission", "experiments", "web"} }

// Public returns the subjects of the facts that anyone may publish.
func Public() []string { return facts(event.Anyone) }

// facts returns the subjects of the facts of a publisher. The version is left open: the reader of a fact judges that.
func facts(publishers ...string) []string {
	var subjects []string
	for _, k := range event.Kinds() {
		if slices.Contains(publishers, k.Publisher) {
			subjects = append(subjects, "yard."+k.Entity+".*."+k.Fact+".*")
		}
	}
	return subjects
}

// records returns the subjects of the keys that a service writes.
func records(service string) []string {
	var subjects []string
	for _, k := range contract.Buckets() {
		for _, r := range k.Records {
			switch r.Writer {
			case service:
				subjects = append(subjects, "$KV."+k.Name+".>")
			case contract.Holder:
				subjects = append(subjects, "$KV."+k.Name+"."+service)
			}
		}
	}
	slices.Sort(subjects)
	return slices.Compact(subjects)
}

// reading are the requests to JetStream that read, and that keep the place of a reader. None of them makes, changes or
// deletes a stream.
func reading() []string {
	return []string{
		"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.>",
		"$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.INFO.>", "$JS.API.CONSUMER.MSG.NEXT.>", "$JS.API.CONSUMER.DELETE.>", "$JS.ACK.>",
	}
}

// conversation says which questions a service asks and which it answers.
type conversation struct{ asks, answers []string }

// conversations are the questions between parts of Switchyard.
func conversations(service string) conversation {
	switch service {
	case "admission":
		return conversation{answers: []string{"switchyard.admission.>"}}
	case "executor":
		return conversation{answers: []string{"switchyard.executor.>"}}
	case "experiments":
		return conversation{answers: []string{"switchyard.experiments.>"}}
	case "nodeagent":
		return conversation{answers: []string{"switchyard.executor.*.logs"}} // of pods
	case "planner":
		return conversation{asks: []string{"switchyard.profiler.model"}, answers: []string{"switchyard.planner.>"}}
	case "profiler":
		return conversation{answers: []string{"switchyard.profiler.>"}}
	case "web":
		return conversation{asks: []string{"switchyard.executor.*.logs", "switchyard.executor.*.files", "switchyard.executor.*.terminal", rpc.OutlookSubject, rpc.CandidateSubject, rpc.PodSubject, contract.SuggestSubject}}
	}
	return conversation{}
}

// ServicePermissions returns what a service may do.
func ServicePermissions(service string) Permissions {
	talk := conversations(service)
	p := Permissions{
		Publish:   slices.Concat(facts(service, event.AnyService), records(service), reading(), talk.asks, []string{"switchyard.bus.trouble"}),
		Subscribe: append([]string{InboxPrefix(service) + ".>"}, talk.answers...),
	}
	if len(talk.answers) > 0 {
		p.Publish = append(p.Publish, "_INBOX.>") // nobody guesses the inbox of another question
	}
	if slices.Contains(asking(), service) {
		p.Publish = append(p.Publish, Public()...)
	}
	if service == "web" { // which asks whether the person is one, and passes on what he types
		p.Publish = append(append(p.Publish, facts(event.Operators)...), InboxPrefix("executor")+".>")
	}
	if service == "planner" { // it deletes the nodes that operators remove
		p.Publish = append(p.Publish, "$KV."+string(contract.Nodes)+".>")
	}
	if service == "admission" { // it says when the register is whole, and passes on what agents report
		_, reports := nodeWriting("*")
		p.Publish = slices.Concat(p.Publish, reports, []string{"$JS.API.STREAM.UPDATE.KV_" + string(contract.Jobs), "_R_.>"})
	}
	if service == "admission" || service == "web" { // web stores uploaded folders, admission deletes them
		p.Publish = append(p.Publish, "$O."+contract.Uploads+".>", "$JS.API.STREAM.PURGE.OBJ_"+contract.Uploads)
	}
	return p
}
