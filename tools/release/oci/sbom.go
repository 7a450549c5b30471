package oci

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"runtime/debug"
	"time"
)

// Materials is a list of what programs are made of: CycloneDX, from what the Go command writes into a program.
type Materials struct {
	Release  Release
	programs map[string]*debug.BuildInfo
}

// Add adds a program.
func (m *Materials) Add(path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read what %s is made of: %w", path, err)
	}
	if m.programs == nil {
		m.programs = map[string]*debug.BuildInfo{}
	}
	m.programs[filepath.Base(path)] = info
	return nil
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl,omitempty"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type document struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

// module returns a module as a component. A replacement of it is what was compiled.
func module(m *debug.Module) component {
	if m.Replace != nil {
		m = m.Replace
	}
	url := "pkg:golang/" + m.Path + "@" + m.Version
	return component{Type: "library", Ref: url, Name: m.Path, Version: m.Version, PURL: url}
}

// Write writes the list.
func (m *Materials) Write(w io.Writer) error {
	doc := document{
		Format: "CycloneDX", Spec: "1.6", Version: 1,
		Metadata: metadata{
			Timestamp: m.Release.At.UTC().Format(time.RFC3339),
			Component: component{Type: "application", Ref: "switchyard", Name: "switchyard", Version: m.Release.Version},
		},
	}
	modules := map[string]component{}
	all := dependency{Ref: "switchyard", On: sortedKeys(m.programs)}
	for _, name := range all.On {
		info := m.programs[name]
		doc.Components = append(doc.Components, component{Type: "application", Ref: name, Name: name, Version: m.Release.Version})
		std := component{Type: "library", Ref: "pkg:golang/std@" + info.GoVersion, Name: "std", Version: info.GoVersion, PURL: "pkg:golang/std@" + info.GoVersion}
		used := map[string]component{std.Ref: std}
		for _, dep := range info.Deps {
			c := module(dep)
			used[c.Ref] = c
		}
		maps.Copy(modules, used)
		doc.Dependencies = append(doc.Dependencies, dependency{Ref: name, On: sortedKeys(used)})
	}
	for _, ref := range sortedKeys(modules) {
		doc.Components = append(doc.Components, modules[ref])
	}
	doc.Dependencies = append([]dependency{all}, doc.Dependencies...)
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(doc); err != nil {
		return fmt.Errorf("write what the programs are made of: %w", err)
	}
	return nil
}
