package oci

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestMaterialsNameTheModulesOfAProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "release")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "..").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	list := Materials{Release: Release{Version: "1.2.3", At: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}}
	if err := list.Add(program); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := list.Write(&out); err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	refs := map[string]bool{doc.Metadata.Component.Ref: true}
	for _, c := range doc.Components {
		if refs[c.Ref] {
			t.Errorf("%s is named twice", c.Ref)
		}
		refs[c.Ref] = true
	}
	if !slices.ContainsFunc(doc.Components, func(c component) bool { return c.Name == "github.com/google/go-containerregistry" && c.Version != "" }) {
		t.Errorf("a module is missing:\n%s", out.Bytes())
	}
	for _, d := range doc.Dependencies {
		for _, on := range append(d.On, d.Ref) {
			if !refs[on] {
				t.Errorf("%s is no component", on)
			}
		}
	}
}
