// Package access decides what a person may do, and to whose jobs. It does not find out who asks: the service that is
// asked does.
package access

import (
	"fmt"
	"slices"
	"strings"
)

// Role is what a person is in an installation.
type Role string

// The roles. A lead is a user who also acts for the jobs of his tenant.
const (
	Viewer   Role = "viewer"
	User     Role = "user"
	Lead     Role = "lead"
	Operator Role = "operator"
	Admin    Role = "admin"
)

// Roles returns the roles, those with fewer rights first.
func Roles() []Role { return []Role{Viewer, User, Lead, Operator, Admin} }

// ParseRole returns the role with a name.
func ParseRole(name string) (Role, error) {
	if r := Role(name); slices.Contains(Roles(), r) {
		return r, nil
	}
	return "", fmt.Errorf("role %q: want viewer, user, lead, operator or admin", name)
}

// Person is the record of a person. People without one are users of the installation's own tenant.
type Person struct {
	Name string `json:"name"`
	// Role is what the person is.
	Role Role `json:"role"`
	// Tenant is the tenant of the jobs that the person submits. Empty: the installation's own.
	Tenant string `json:"tenant,omitempty"`
	// Sequence is that of the newest fact folded into the record.
	Sequence uint64 `json:"sequence,omitempty"`
}

// Tenant is the record of a tenant.
type Tenant struct {
	Name string `json:"name"`
	Bounds
	// Sequence is that of the newest fact folded into the record.
	Sequence uint64 `json:"sequence,omitempty"`
}

// Bounds are what the jobs of a tenant may take together.
type Bounds struct {
	// Devices is the largest number of devices that its jobs may hold together; nil: no bound of its own.
	Devices *int `json:"devices,omitempty"`
	// Queued is the largest number of its jobs that may wait; nil: no bound.
	Queued *int `json:"queued,omitempty"`
	// Priority is the highest priority that its jobs may have; nil: no bound.
	Priority *int `json:"priority,omitempty"`
	// EnergyKWh is the most energy, in kWh, that its jobs may use in a calendar month (UTC) before those that wait go on
	// waiting; nil: no bound.
	EnergyKWh *float64 `json:"energy_kwh_per_month,omitempty"`
	// Shares say which part of the devices the tenant may use in the long run, beside the shares of others; nil: 1. Jobs
	// of tenants that have used more than their part wait for those of others.
	Shares *float64 `json:"shares,omitempty"`
	// Requests is how many submissions and other requests each of its people may make in a minute; nil: 1200.
	Requests *int `json:"requests_per_minute,omitempty"`
}

// RequestsPerMinute is how many requests a person makes if the record of his tenant says nothing else.
const RequestsPerMinute = 1200

// MostEnergyKWh is the largest quota of energy: more joules have no number.
const MostEnergyKWh = 2.5e6

// nameCharacters are what a name may consist of, mostName is its greatest length: as the names of a machine's users,
// with dots. As a pattern each command would compile them at its start, which takes half a millisecond.
const (
	nameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
	mostName       = 63
)

// Key returns the key of the record of a person or tenant, which is also the id in the subjects of facts about it. A
// dot separates the parts of both, so it becomes an equals sign.
func Key(name string) (string, error) {
	if name == "" || len(name) > mostName || strings.Trim(name, nameCharacters) != "" || strings.ContainsAny(name[:1], ".-") {
		return "", fmt.Errorf("name %.80q: want 1 to 63 letters, digits, '_', '-' or '.', beginning with a letter, digit or '_'", name)
	}
	return strings.ReplaceAll(name, ".", "="), nil
}

// Owner is whose job it is.
type Owner struct{ User, Tenant string }

// Operation is something that a person does.
type Operation string

// The operations.
const (
	SeeJobs        Operation = "see jobs"
	SeePlan        Operation = "see the plan"
	SeeNodes       Operation = "see nodes"
	SeeModels      Operation = "see models"
	SeeSpec        Operation = "see the spec"
	ReadOutput     Operation = "read the output"
	ReadFiles      Operation = "read files"
	AskWhatIf      Operation = "ask what if"
	Submit         Operation = "submit"
	Cancel         Operation = "cancel"
	Hold           Operation = "hold, pause, resume or requeue"
	Edit           Operation = "change the spec"
	Attach         Operation = "open a terminal"
	SeeExperiment  Operation = "see an experiment"
	StopExperiment Operation = "stop an experiment"
	OrderNode      Operation = "cordon, drain, resume or remove a node"
	SeeUsers       Operation = "see users and tenants"
	ChangeTenant   Operation = "change a tenant's quota"
	ChangeUser     Operation = "change a user"
	SeeAudit       Operation = "see who did what"
)

// Scope is to whose jobs an operation is allowed.
type Scope int

// The scopes, each wider than the one before. An operation that is about no job is allowed to nobody or to All.
const (
	Nobody Scope = iota
	Own
	Tenants
	All
)

// String returns the scope as the table of the documentation writes it.
func (s Scope) String() string { return [...]string{"no", "own", "tenant's", "all"}[s] }

// Row is one operation of the permission matrix.
type Row struct {
	Operation Operation
	// Scopes are those of Roles, in their order.
	Scopes [5]Scope
}

// Matrix returns the permission matrix.
func Matrix() []Row {
	everybody := [5]Scope{All, All, All, All, All}
	owners := [5]Scope{Nobody, Own, Tenants, All, All}
	operators := [5]Scope{Nobody, Nobody, Nobody, All, All}
	admins := [5]Scope{Nobody, Nobody, Nobody, Nobody, All}
	return []Row{
		{SeeJobs, everybody},
		{SeePlan, everybody},
		{SeeNodes, everybody},
		{SeeModels, everybody},
		{AskWhatIf, everybody},
		{SeeSpec, owners},
		{ReadOutput, owners},
		{ReadFiles, owners},
		{Submit, [5]Scope{Nobody, All, All, All, All}},
		{Cancel, owners},
		{Hold, owners},
		{Edit, owners},
		// What is typed runs with the owner's rights, so nobody else may.
		{Attach, [5]Scope{Nobody, Own, Own, Own, Own}},
		{SeeExperiment, owners},
		{StopExperiment, owners},
		{OrderNode, operators},
		{SeeUsers, everybody},
		{ChangeTenant, operators},
		{ChangeUser, admins},
		{SeeAudit, operators},
	}
}

// Allowed returns to whose jobs a role may do something.
func Allowed(role Role, op Operation) Scope {
	column := slices.Index(Roles(), role)
	for _, row := range Matrix() {
		if row.Operation == op && column >= 0 {
			return row.Scopes[column]
		}
	}
	return Nobody
}

// DeniedError says that a person may not do something.
type DeniedError struct {
	Person    Person
	Operation Operation
	// Owner is whose job it is about, if it is about one.
	Owner Owner
}

// Error implements error.
func (e *DeniedError) Error() string {
	if e.Owner.User == "" || Allowed(e.Person.Role, e.Operation) == Nobody {
		return fmt.Sprintf("%s is a %s, who may not %s", e.Person.Name, e.Person.Role, e.Operation)
	}
	return fmt.Sprintf("the %s is %s's: %s may not %s it", e.noun(), e.Owner.User, e.Person.Name, e.verb())
}

func (e *DeniedError) noun() string {
	if e.Operation == SeeExperiment || e.Operation == StopExperiment {
		return "experiment"
	}
	return "job"
}

func (e *DeniedError) verb() string {
	verb, _, _ := strings.Cut(string(e.Operation), " the ")
	switch e.Operation { //nolint:exhaustive // the others are verbs
	case SeeSpec, ReadOutput, ReadFiles, SeeExperiment:
		return "read"
	case StopExperiment:
		return "stop"
	case Attach:
		return "open a terminal in"
	case Edit:
		return "change"
	}
	return verb
}

// Fix says who may.
func (e *DeniedError) Fix() string {
	var who []string
	for _, r := range Roles() {
		switch s := Allowed(r, e.Operation); {
		case s == Own && r == User:
			who = append(who, "its owner")
		case s == Tenants && e.Owner.Tenant != "":
			who = append(who, fmt.Sprintf("a %s of the tenant %s", r, e.Owner.Tenant))
		case s == All:
			who = append(who, "any "+string(r))
		}
	}
	return "who may: " + strings.Join(who, ", ")
}

// May returns a DeniedError if a person may not do something to a job of an owner; owner is zero if it is about no job.
func May(p Person, op Operation, owner Owner) error {
	scope := Allowed(p.Role, op)
	switch {
	case scope == All,
		scope >= Own && owner.User != "" && owner.User == p.Name,
		scope >= Tenants && owner.Tenant != "" && owner.Tenant == p.Tenant:
		return nil
	}
	return &DeniedError{Person: p, Operation: op, Owner: owner}
}
