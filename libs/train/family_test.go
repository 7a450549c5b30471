package train

import "testing"

func TestJobsOfOneFamily(t *testing.T) {
	of := func(command ...string) Spec {
		return Spec{Command: command, Image: "torch:2", WorkDir: "/code", DatasetsDir: "/data", TrainingSetSize: 1000, BatchSize: 32}
	}
	base := of("python3", "-u", "train.py", "--lr", "0.1", "--amp", "--layers=3")
	with := func(change func(*Spec)) Spec {
		s := base
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		spec Spec
		kin  bool
	}{
		"another value of a flag":  {of("python3", "-u", "train.py", "--lr", "0.3", "--amp", "--layers=5"), true},
		"flags in another order":   {of("python3", "train.py", "--layers=3", "--lr", "0.1"), true},
		"an assignment":            {of("python3", "train.py", "optimizer.lr=0.1"), true},
		"a number":                 {of("python3", "train.py", "17"), true},
		"another environment":      {with(func(s *Spec) { s.Env = map[string]string{"LR": "1"} }), true},
		"another batch":            {with(func(s *Spec) { s.BatchSize = 64 }), true},
		"more devices and epochs":  {with(func(s *Spec) { s.MaxDevices, s.MaxEpochs = 8, 99 }), true},
		"another program":          {of("python3", "-u", "eval.py", "--lr", "0.1"), false},
		"another module":           {of("python3", "-m", "train.vision", "--lr", "0.1"), false},
		"another folder of code":   {with(func(s *Spec) { s.WorkDir = "/other" }), false},
		"another image":            {with(func(s *Spec) { s.Image = "torch:1" }), false},
		"other data":               {with(func(s *Spec) { s.DatasetsDir = "/imagenet" }), false},
		"a part of the data":       {with(func(s *Spec) { s.TrainingSetSize = 10 }), false},
		"another tenant":           {with(func(s *Spec) { s.Tenant = "others" }), false},
		"a family by name":         {with(func(s *Spec) { s.Family = "resnet" }), false},
		"another strategy":         {with(func(s *Spec) { s.Strategy = StrategyParameterServer }), false},
		"the same through a shell": {of("sh", "-c", "exec python3 train.py --lr 3"), false},
	} {
		if kin := c.spec.FamilyKey() == base.FamilyKey(); kin != c.kin {
			t.Errorf("%s: one family is %v, want %v", name, kin, c.kin)
		}
	}
	shell := func(lr string) string { return of("sh", "-c", "cd x && exec python3 train.py --lr "+lr).FamilyKey() }
	if shell("1") != shell("2") {
		t.Error("the values of flags in a shell's text make strangers")
	}
	if modules := []Spec{of("python3", "-m", "a"), of("python3", "-m", "b")}; modules[0].FamilyKey() == modules[1].FamilyKey() {
		t.Error("two modules are one family")
	}
	named := func(program string) string { return Spec{Family: "resnet", ScriptPath: program}.FamilyKey() }
	if named("a.py") != named("b.py") {
		t.Error("a family's name does not count")
	}
	if key := (Spec{Name: "n", BatchSize: 1}).FamilyKey(); key != "" {
		t.Errorf("no program: %q", key)
	}
}
