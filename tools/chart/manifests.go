package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// The manifests, below the repository.
const (
	manifests  = "deploy/k8s"
	components = manifests + "/components"
)

// toggles are the components that a value of the same name adds to the base.
func toggles() []string { return []string{"monitoring", "replicated", "probing", "dra", "plainpods"} }

// object is one Kubernetes object as kustomize prints it.
type object struct {
	kind, namespace, name string
	yaml                  string
}

func (o object) key() string { return o.kind + " " + o.namespace + "/" + o.name }

// build returns the objects of the base with components, in the order of kustomize.
func build(root string, with ...string) ([]object, error) {
	dir, err := os.MkdirTemp("", "chart")
	if err != nil {
		return nil, fmt.Errorf("make a folder for an overlay: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// kustomize takes relative paths alone, and follows symbolic links.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("resolve the folder of an overlay: %w", err)
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, fmt.Errorf("resolve the repository: %w", err)
	}
	relative, err := filepath.Rel(dir, root)
	if err != nil {
		return nil, fmt.Errorf("find the manifests from an overlay: %w", err)
	}
	var overlay strings.Builder
	fmt.Fprintf(&overlay, "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s]\ncomponents:\n", filepath.Join(relative, manifests, "base"))
	for _, component := range with {
		fmt.Fprintf(&overlay, "  - %s\n", filepath.Join(relative, components, component))
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay.String()), 0o600); err != nil {
		return nil, fmt.Errorf("write an overlay: %w", err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("build the manifests with %v: %w", with, err)
	}
	var objects []object
	for _, r := range built.Resources() {
		o, err := printed(r)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

func printed(r *resource.Resource) (object, error) {
	text, err := r.AsYAML()
	if err != nil {
		return object{}, fmt.Errorf("print %s: %w", r.CurId(), err)
	}
	return object{kind: r.GetKind(), namespace: r.GetNamespace(), name: r.GetName(), yaml: string(text)}, nil
}
