package identity

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	// Account is where the streams are, and the services speak.
	Account = "SWITCHYARD"
	// usersAccount has those who publish job events.
	usersAccount = "USERS"
	// usersConnections, usersSubscriptions and usersPayload bound what all of them together can take.
	usersConnections   = 256
	usersSubscriptions = 4096
	usersPayload       = 320 << 10
)

// Accounts returns the accounts that a nats-server needs, as part of its configuration: every role by its public key,
// with what it may do.
//
// Users are in an account of their own, which imports the subjects of the facts that anyone may publish and nothing
// else. The server answers on subjects of that account: no request, reply subject or header of a user reaches a stream
// otherwise.
func (k Keys) Accounts() (string, error) {
	roles, nodes := map[string]string{}, map[string]string{}
	for _, role := range Roles() {
		var err error
		if roles[role], err = k.public(role); err != nil {
			return "", err
		}
	}
	names, err := k.Nodes()
	if err != nil {
		return "", err
	}
	for _, node := range names {
		if nodes[node], err = k.OfNode(node).public(Node); err != nil {
			return "", err
		}
	}
	return accounts(roles, nodes), nil
}

// accounts returns the accounts of the roles and the nodes with these public keys. A role without one is not let in.
func accounts(roles, nodes map[string]string) string {
	names := slices.Sorted(maps.Keys(nodes))
	var b strings.Builder
	fmt.Fprintf(&b, "accounts {\n  %s {\n    jetstream: enabled\n    users: [\n", Account)
	fmt.Fprintf(&b, "      # %s\n      {nkey: %s}\n", Operator, roles[Operator])
	for _, s := range Services() {
		if roles[s] == "" {
			continue
		}
		p := ServicePermissions(s)
		fmt.Fprintf(&b, "      # %s\n      {nkey: %s, permissions: {\n        publish: [%s]\n        subscribe: [%s]\n      }}\n", s, roles[s], quoted(p.Publish), quoted(p.Subscribe))
	}
	fmt.Fprintf(&b, "    ]\n    exports: [\n")
	for _, subject := range Public() {
		fmt.Fprintf(&b, "      {service: %q, accounts: [%s]}\n", subject, usersAccount)
	}
	for _, line := range nodeExports(names) {
		fmt.Fprintf(&b, "      %s\n", line)
	}
	fmt.Fprintf(&b, "    ]\n    imports: [\n")
	for _, node := range names {
		fmt.Fprintf(&b, "      {service: {account: %s, subject: %q}}\n", nodeAccount(node), answers(node))
	}
	fmt.Fprintf(&b, "    ]\n  }\n")
	for _, node := range names {
		writeNodeAccount(&b, node, nodes[node])
	}
	fmt.Fprintf(&b, "  %s {\n    limits: {max_connections: %d, max_subscriptions: %d, max_payload: %d}\n", usersAccount, usersConnections, usersSubscriptions, usersPayload)
	fmt.Fprintf(&b, "    users: [\n      # %s\n      {nkey: %s, permissions: {publish: [%s], subscribe: [\"_INBOX.>\"]}}\n    ]\n    imports: [\n", User, roles[User], quoted(Public()))
	for _, subject := range Public() {
		fmt.Fprintf(&b, "      {service: {account: %s, subject: %q}}\n", Account, subject)
	}
	fmt.Fprintf(&b, "    ]\n  }\n}\n")
	return b.String()
}

func quoted(subjects []string) string {
	list := make([]string, len(subjects))
	for i, s := range subjects {
		list[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(list, ", ")
}
