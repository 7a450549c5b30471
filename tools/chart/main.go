// Command chart makes the Helm chart of Switchyard from the manifests in deploy/k8s: what kustomize builds of them,
// with the places that values.yaml names made templates. deploy/chart has what a person writes: the values, their
// schema, and the notes.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", ".", "the repository")
	version := flag.String("version", "0.0.0-devel", "version of the chart, of the program and so of its images")
	out := flag.String("out", "bin/chart", "the folder in which the chart and its archive are made")
	flag.Parse()
	if err := run(*root, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(root, version, out string) error {
	c, err := Generate(root, version)
	if err != nil {
		return err
	}
	archive, err := c.Write(out)
	if err != nil {
		return err
	}
	fmt.Println(archive)
	return nil
}
