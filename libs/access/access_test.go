package access

import (
	"errors"
	"strings"
	"testing"
)

func TestTheMatrixIsWhole(t *testing.T) {
	cells := 0
	for _, row := range Matrix() {
		for i, role := range Roles() {
			cells++
			if got := Allowed(role, row.Operation); got != row.Scopes[i] {
				t.Errorf("%s, %s: %v, the matrix has %v", role, row.Operation, got, row.Scopes[i])
			}
			if i > 0 && row.Operation != Attach && row.Scopes[i] < row.Scopes[i-1] {
				t.Errorf("%s: a %s may less than a %s", row.Operation, role, Roles()[i-1])
			}
		}
	}
	if cells != 100 {
		t.Errorf("%d cells, want 100", cells)
	}
}

func TestMay(t *testing.T) {
	ann, bob, lead := Person{Name: "ann", Role: User, Tenant: "vision"}, Person{Name: "bob", Role: User, Tenant: "vision"}, Person{Name: "lea", Role: Lead, Tenant: "vision"}
	anns, alien := Owner{User: "ann", Tenant: "vision"}, Owner{User: "zoe", Tenant: "speech"}
	for _, c := range []struct {
		who  Person
		op   Operation
		of   Owner
		want bool
	}{
		{ann, Cancel, anns, true},
		{bob, Cancel, anns, false},
		{lead, Cancel, anns, true},
		{lead, Cancel, alien, false},
		{Person{Name: "op", Role: Operator}, Cancel, alien, true},
		{Person{Name: "op", Role: Operator}, Attach, alien, false},
		{Person{Name: "guest", Role: Viewer}, Submit, Owner{}, false},
		{Person{Name: "guest", Role: Viewer}, SeeJobs, alien, true},
		{Person{Name: "", Role: User}, Cancel, Owner{}, false}, // a job whose owner nobody knows
		{Person{Name: "ann", Role: "root"}, SeeJobs, anns, false},
	} {
		err := May(c.who, c.op, c.of)
		if (err == nil) != c.want {
			t.Errorf("%s may %s of %+v: %v, want %v", c.who.Name, c.op, c.of, err, c.want)
		}
	}
	denied, _ := errors.AsType[*DeniedError](May(bob, Cancel, anns))
	if said := denied.Error() + "; " + denied.Fix(); said != "the job is ann's: bob may not cancel it; who may: its owner, a lead of the tenant vision, any operator, any admin" {
		t.Error(said)
	}
}

func TestKey(t *testing.T) {
	if key, err := Key("ann.smith"); err != nil || key != "ann=smith" {
		t.Error(key, err)
	}
	for _, name := range []string{"", ".", "../x", "a b", "a=b", "a>b", "a*", strings.Repeat("a", 64)} {
		if key, err := Key(name); err == nil {
			t.Errorf("%q has the key %q", name, key)
		}
	}
}
