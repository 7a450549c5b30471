package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/image"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// buildImage builds an image of the job's folder if the flags ask for it. The job then runs there, so it does not see
// the folder itself.
func (f *submitFlags) buildImage(ctx context.Context, a *console.Console, spec *train.Spec, folder string) error {
	switch {
	case !f.build && f.push != "":
		return exit.Usagef("--push %s: want --build, which makes the image", f.push)
	case !f.build:
		return nil
	case f.spec.Image != "":
		return exit.Usagef("--build and --image exclude each other")
	}
	built, err := image.Build(ctx, a, image.Options{Folder: cmp.Or(spec.WorkDir, folder), Push: f.push})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Stderr, "built %s; the job runs in %s\n", built.Tag, built.Reference)
	spec.Image, spec.WorkDir = built.Reference, ""
	return nil
}

// bring sees to what a job brings along: its image and its folder.
func (f *submitFlags) bring(ctx context.Context, a *console.Console, y console.Yard, fs *pflag.FlagSet, spec *train.Spec) error {
	if err := f.findImage(ctx, a, y); err != nil {
		return err
	}
	return f.travel(ctx, a, y, fs, spec)
}

// findImage checks that the image that was built is where the job may run: without --push it is on this machine alone.
func (f *submitFlags) findImage(ctx context.Context, a *console.Console, y console.Yard) error {
	if !f.build || f.push != "" {
		return nil
	}
	nodes, err := y.Nodes(ctx)
	if err != nil {
		return err
	}
	boot, _ := proc.Root("/proc").BootID()
	other := func(n *train.Node) bool { return n.Backend != train.BackendLocal || n.BootID != boot }
	switch i := slices.IndexFunc(nodes, other); {
	case i < 0:
	case !slices.ContainsFunc(nodes, func(n *train.Node) bool { return !other(n) }):
		return exit.Errorf(exit.Usage, "--push REGISTRY/NAME", "the image is on this machine alone, which is no node")
	default:
		fmt.Fprintf(a.Stderr, "warning: the image is on this machine alone, and the job fails if it starts on %s\n  fix: --push REGISTRY/NAME\n", nodes[i].ID)
	}
	return nil
}
