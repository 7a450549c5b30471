// Package people holds the commands about users and tenants.
package people

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// Commands returns the commands.
func Commands() []console.Command { return []console.Command{userCommand, tenantCommand, openCommand} }

func userCommand(a *console.Console) *cobra.Command {
	cmd := &cobra.Command{Use: "user", Short: "Give people a role and a tenant"}
	var role, tenant string
	set := &cobra.Command{
		Use:   "set NAME",
		Short: "Give a person a role and a tenant",
		Long: `Gives a person, who is known by the name of his user of the machine, a role and a tenant. Those who have neither are
users of the installation's own tenant. The roles, and what each may do, are in docs/access.md.`,
		Example: "  switchyard user set ann --tenant vision\n  switchyard user set bob --tenant vision --role lead",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := access.ParseRole(role)
			if err != nil {
				return exit.Usagef("%v", err)
			}
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				return ask(ctx, a, y, event.EntityUser, args[0], event.UserSet{Role: r, Tenant: tenant, By: installation.CurrentUser()}, func(ctx context.Context, y console.Yard) (uint64, error) {
					return sequenceOf(ctx, y.Users, func(p *access.Person) (string, uint64) { return p.Name, p.Sequence }, args[0])
				})
			})
		},
	}
	set.Flags().StringVar(&role, "role", string(access.User), "viewer, user, lead, operator or admin")
	set.Flags().StringVar(&tenant, "tenant", "", "tenant of the person's jobs (default: the installation's own)")
	list := &cobra.Command{
		Use:   "list",
		Short: "Show the people who have a role or a tenant of their own",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				users, err := y.Users(ctx)
				if err != nil {
					return err
				}
				return a.Show(users, "USER\tROLE\tTENANT", func(w io.Writer) {
					for _, u := range users {
						fmt.Fprintf(w, "%s\t%s\t%s\n", render.EscapeText(u.Name), render.EscapeText(string(u.Role)), render.EscapeText(u.Tenant))
					}
				})
			})
		},
	}
	cmd.AddCommand(list, set)
	return cmd
}

func tenantCommand(a *console.Console) *cobra.Command {
	cmd := &cobra.Command{Use: "tenant", Short: "Bound what the jobs of a tenant may take"}
	set := &cobra.Command{
		Use:   "set NAME",
		Short: "Bound what the jobs of a tenant may take together",
		Long: `Bounds what the jobs of a tenant may take together, from now on. A bound that is not given stays as it is; none lifts
it. Jobs that run are asked to leave if a smaller number of devices needs it. Once their energy is used up, jobs that run
go on, and others wait for the first of the next month (UTC).`,
		Example: "  switchyard tenant set vision --devices 8 --queued 200\n  switchyard tenant set vision --energy 500 --shares 3\n  switchyard tenant set guests --priority 30",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				bounds, err := boundsOf(ctx, y, args[0])
				if err != nil {
					return err
				}
				for name, bound := range map[string]**int{"devices": &bounds.Devices, "queued": &bounds.Queued, "priority": &bounds.Priority, "requests": &bounds.Requests} {
					if f := cmd.Flags().Lookup(name); f.Changed {
						if *bound, err = parseBound(f.Value.String()); err != nil {
							return exit.Usagef("--%s %v", name, err)
						}
					}
				}
				for name, bound := range map[string]**float64{"energy": &bounds.EnergyKWh, "shares": &bounds.Shares} {
					if f := cmd.Flags().Lookup(name); f.Changed {
						if *bound, err = parseAmount(f.Value.String(), access.MostEnergyKWh); err != nil {
							return exit.Usagef("--%s %v", name, err)
						}
					}
				}
				return ask(ctx, a, y, event.EntityTenant, args[0], event.TenantSet{Bounds: bounds, By: installation.CurrentUser()}, func(ctx context.Context, y console.Yard) (uint64, error) {
					return sequenceOf(ctx, y.Tenants, func(t *access.Tenant) (string, uint64) { return t.Name, t.Sequence }, args[0])
				})
			})
		},
	}
	set.Flags().String("devices", "", "the most devices that they may hold together, or none")
	set.Flags().String("queued", "", "the most of them that may wait, or none")
	set.Flags().String("priority", "", "the highest priority that they may have, or none")
	set.Flags().String("energy", "", "the most kWh that they may use in a calendar month before others of them wait, or none")
	set.Flags().String("shares", "", "the tenant's part of the devices in the long run, beside 1 of each other tenant, or none")
	set.Flags().String("requests", "", "how often in a minute each of its people may submit or ask for something, or none for 1200")
	list := &cobra.Command{
		Use:   "list",
		Short: "Show the bounds of tenants",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				tenants, err := y.Tenants(ctx)
				if err != nil {
					return err
				}
				return a.Show(tenants, "TENANT\tDEVICES\tQUEUED\tPRIORITY\tKWH\tSHARES\tREQUESTS", func(w io.Writer) {
					for _, t := range tenants {
						fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", render.EscapeText(t.Name), boundWords(t.Devices), boundWords(t.Queued), boundWords(t.Priority), boundWords(t.EnergyKWh), boundWords(t.Shares), boundWords(t.Requests))
					}
				})
			})
		},
	}
	cmd.AddCommand(list, set)
	return cmd
}

// parseBound reads a number, or none for no bound.
func parseBound(word string) (*int, error) {
	if word == "none" {
		return nil, nil //nolint:nilnil // no bound
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%q: want a whole number from 0 on, or none", word) //nolint:err113 // shown to a person
	}
	return &n, nil
}

// parseAmount reads a number, or none for no bound.
func parseAmount(word string, most float64) (*float64, error) {
	if word == "none" {
		return nil, nil //nolint:nilnil // no bound
	}
	n, err := strconv.ParseFloat(word, 64)
	if err != nil || !(n >= 0 && n <= most) {
		return nil, fmt.Errorf("%q: want a number from 0 to %g, or none", word, most) //nolint:err113 // shown to a person
	}
	return &n, nil
}

func boundWords[T int | float64](bound *T) string {
	if bound == nil {
		return "-"
	}
	return fmt.Sprint(*bound)
}

func boundsOf(ctx context.Context, y console.Yard, name string) (access.Bounds, error) {
	tenants, err := y.Tenants(ctx)
	if err != nil {
		return access.Bounds{}, err
	}
	if i := slices.IndexFunc(tenants, func(t *access.Tenant) bool { return t.Name == name }); i >= 0 {
		return tenants[i].Bounds, nil
	}
	return access.Bounds{}, nil
}

// sequenceOf returns the fact that the record of a name follows; 0 if there is none.
func sequenceOf[T any](ctx context.Context, list func(context.Context) ([]*T, error), of func(*T) (string, uint64), name string) (uint64, error) {
	records, err := list(ctx)
	for _, r := range records {
		if found, sequence := of(r); found == name {
			return sequence, err
		}
	}
	return 0, err
}

// answerTimeout bounds the wait for admission.
const answerTimeout = 10 * time.Second

// ask publishes a request about a name and waits until the record follows it.
func ask(ctx context.Context, a *console.Console, y console.Yard, entity, name string, body any, sequence func(context.Context, console.Yard) (uint64, error)) error {
	key, err := access.Key(name)
	if err != nil {
		return exit.Usagef("%v", err)
	}
	before, err := sequence(ctx, y)
	if err != nil {
		return err
	}
	if _, err := y.Publish(ctx, event.PeopleFact(entity, key, time.Now().UTC(), body)); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for range tick.Every(waiting, 50*time.Millisecond) {
		if now, err := sequence(waiting, y); err == nil && now > before {
			fmt.Fprintf(a.Stdout, "%s %s is set\n", entity, strings.TrimSpace(name))
			return nil
		}
	}
	return exit.Errorf(exit.Failed, "the request is stored and will be followed; is admission running?", "admission has not followed the request about %s %s in %s", entity, name, answerTimeout)
}
