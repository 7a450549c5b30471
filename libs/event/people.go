package event

import (
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
)

// UserSet asks that the record of a person be as it says. Those without one are users of the installation's own tenant.
type UserSet struct {
	// Role is what the person is from now on.
	Role access.Role `json:"role,omitempty"`
	// Tenant is the tenant of the jobs that the person submits. Empty: the installation's own.
	Tenant string `json:"tenant,omitempty"`
	By     string `json:"by,omitempty"`
}

// TenantSet asks that the bounds of a tenant be as it says. A bound that it leaves out is lifted.
type TenantSet struct {
	access.Bounds
	By string `json:"by,omitempty"`
}

// AccessRefused says that a person asked for what he may not do, or the agent of a node.
type AccessRefused struct {
	// Person is the name by which web knows who asked, or node. and the name of a node. Door is how he came to web, or
	// bus.
	Person string `json:"person"`
	Door   string `json:"door"`
	// Operation is a row of the table of permissions, Request the method and path or the subject, Message why it was
	// refused.
	Operation access.Operation `json:"operation"`
	Request   string           `json:"request"`
	Message   string           `json:"message"`
	// Missed is the number of refusals of this person before this one that were too many to be stored.
	Missed int `json:"missed,omitempty"`
}

// FactRefused is the fact about a person whom web has refused something. EntityAccess is its entity.
const (
	FactRefused  = "refused"
	EntityAccess = "access"
)

// FactSetRequested is the fact of users and tenants.
const FactSetRequested = "set_requested"

// The entities of people.
const (
	EntityUser   = "user"
	EntityTenant = "tenant"
)

// PeopleFact returns a request about a user or tenant, by the key of its name. It may be repeated at any time, so its
// own key has the time.
func PeopleFact(entity, key string, at time.Time, body any) Fact {
	return Fact{
		Subject: Subject{Entity: entity, ID: key, Fact: FactSetRequested, Version: 1},
		Key:     fmt.Sprintf("%s/%s/%s/%d", entity, key, FactSetRequested, at.UnixNano()), Time: at, Body: body,
	}
}

// peopleKinds returns the facts of users and tenants.
func peopleKinds() []Kind {
	kind := func(entity, doc string, newBody func() any) Kind {
		return Kind{entity, FactSetRequested, 1, StreamPeople, Operators, entity + "/<id>/" + FactSetRequested + "/<time>", false, doc, newBody}
	}
	return []Kind{
		kind(EntityUser, "A request to give a person a role and a tenant; <id> is the name, with '=' for '.'.", body[UserSet]),
		{
			EntityAccess, FactRefused, 1, StreamAccess, AnyService, "access/<id>/refused/<any>", false,
			"A person, or the agent of a node, asked for what he may not do; <id> is the name, with '=' for '.'. At most one in a second is stored, after the first hundred.", body[AccessRefused],
		},
		kind(EntityTenant, "A request to bound what the jobs of a tenant take together; <id> is the name, with '=' for '.'.", body[TenantSet]),
	}
}
