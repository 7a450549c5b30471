// Command site makes the documentation site from the Markdown files of the repository, by Hugo, and checks it: each
// page is in the navigation exactly once, every link leads somewhere, and nothing is loaded from elsewhere. Without
// -hugo it checks the navigation alone.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/switchyard-dl/switchyard/tools/walk"
)

func main() {
	root := flag.String("root", "../..", "the repository")
	hugo := flag.String("hugo", "", "the `PROGRAM` Hugo")
	out := flag.String("out", "", "the `FOLDER` of the site, which is emptied first")
	flag.Parse()
	findings, err := navigation(*root)
	if err == nil && len(findings) == 0 && *hugo != "" {
		if err = build(context.Background(), *root, *hugo, *out); err == nil {
			findings, err = built(*out)
		}
	}
	walk.Exit("site", findings, err)
}

// build runs Hugo, which reads no network and writes nothing outside of the folder of the site.
func build(ctx context.Context, root, hugo, out string) error {
	var err error
	for _, path := range []*string{&hugo, &out} {
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("find %s: %w", *path, err)
		}
	}
	cmd := exec.CommandContext(ctx, hugo, "--destination", out, "--cleanDestinationDir", "--noBuildLock", "--quiet", "--panicOnWarning")
	cmd.Dir = filepath.Join(root, "tools/site/hugo")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run Hugo: %w", err)
	}
	return nil
}
