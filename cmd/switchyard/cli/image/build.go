// Package image builds container images of jobs' folders.
package image

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/proc"
)

// Options say what to build.
type Options struct {
	Folder string
	// File is the Dockerfile; empty for that of the folder.
	File string
	// Args are NAME=VALUE pairs for its ARG lines.
	Args []string
	// Push is the name under which a registry gets the image; empty if it stays on this machine.
	Push string
}

// Built is an image.
type Built struct {
	// Reference is for the image of a job. It is a digest, so it means this content for good: that of the registry, or
	// else that of the image on this machine.
	Reference string        `json:"reference"`
	Tag       string        `json:"tag"`
	Engine    engine.Engine `json:"engine"`
	Pushed    bool          `json:"pushed,omitempty"`
}

// Command makes the command of this package.
func Command(a *console.Console) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "build [FOLDER]",
		Short: "Build a container image of a job's folder",
		Long: `Builds an image by the Dockerfile or Containerfile of a folder, by default this one, with the engine in which the
node of this machine runs images; without a node, with docker or, if that does not answer, podman. It prints the reference for the key image of a job, a
digest, which means this content for good. The image also has a tag by its content, for people.

Without --push the image is on this machine alone, in the store of this user. ` + "`switchyard submit --build`" + ` does both: it builds, and submits a job that
runs in the image.`,
		Example: `  switchyard build
  switchyard submit --image "$(switchyard build --push registry.example/ann/mnist)" -- python3 train.py
  switchyard submit --build job.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Folder = cmp.Or(slices.Concat(args, []string{"."})...)
			built, err := Build(cmd.Context(), a, o)
			if err != nil {
				return err
			}
			if a.Output == "json" {
				return a.PrintJSON(built)
			}
			fmt.Fprintln(a.Stderr, "built "+built.Tag)
			_, err = fmt.Fprintln(a.Stdout, built.Reference)
			return err
		},
	}
	cmd.Flags().StringVarP(&o.File, "file", "f", "", "the Dockerfile (default: Dockerfile or Containerfile in the folder)")
	cmd.Flags().StringArrayVar(&o.Args, "build-arg", nil, "NAME=VALUE for an ARG of the Dockerfile (repeatable)")
	cmd.Flags().StringVar(&o.Push, "push", "", "`REGISTRY/NAME[:TAG]` to push the image to, for other machines (default tag: by its content)")
	return cmd
}

// engineTime is how long an engine may take to answer: a person waits.
const engineTime = 10 * time.Second

// Build builds an image, and pushes it if a name is given.
func Build(ctx context.Context, a *console.Console, o Options) (Built, error) {
	if strings.Contains(o.Push, "@") {
		return Built{}, exit.Usagef("--push %q: want REGISTRY/NAME[:TAG]: the digest follows from the content", o.Push)
	}
	folder, err := filepath.Abs(o.Folder)
	if err != nil {
		return Built{}, fmt.Errorf("find the folder: %w", err)
	}
	if o.File, err = dockerfile(folder, o.File); err != nil {
		return Built{}, err
	}
	e, trouble := find(ctx, a)
	if trouble != "" {
		return Built{}, exit.Errorf(exit.Failed, "install docker or podman, start it, and let this user use it", "no container engine to build with: %s", trouble)
	}
	scratch, err := os.MkdirTemp("", "switchyard-build-*")
	if err != nil {
		return Built{}, fmt.Errorf("build an image: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	c := client{engine: e, says: a.Stderr, scratch: scratch}
	id, err := c.build(ctx, folder, o)
	if err != nil {
		return Built{}, err
	}
	b := Built{Reference: id, Tag: tagOf(folder, o.Push, id), Engine: e}
	if err := c.run(ctx, a.Stderr, "tag", id, b.Tag); err != nil || o.Push == "" {
		return b, err
	}
	b.Pushed = true
	b.Reference, err = c.push(ctx, b.Tag)
	return b, err
}

// find returns the engine in which the node on this machine runs images, since an image is in the store of its engine,
// or else the first that works.
func find(ctx context.Context, a *console.Console) (e engine.Engine, trouble string) {
	if y, done, err := a.Yard(ctx); err == nil {
		defer done()
		nodes, err := y.Nodes(ctx)
		boot, _ := proc.Root("/proc").BootID()
		for _, n := range nodes {
			if e = engine.Named(n.ContainerRuntime); err == nil && n.BootID == boot && e != engine.None {
				return e, e.Trouble(ctx, engineTime)
			}
		}
	}
	return engine.Find(ctx, engineTime)
}

// dockerfile returns the file that says how to build.
func dockerfile(folder, named string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	for _, name := range []string{"Dockerfile", "Containerfile"} {
		if info, err := os.Stat(filepath.Join(folder, name)); err == nil && info.Mode().IsRegular() {
			return filepath.Join(folder, name), nil
		}
	}
	return "", exit.Errorf(exit.Usage, `write one, for example of the lines "FROM python:3.12", "WORKDIR /job" and "COPY . ."; or name it with --file`,
		"no Dockerfile or Containerfile in %s", folder)
}

// client builds with an engine.
type client struct {
	engine  engine.Engine
	says    io.Writer
	scratch string
}

func (c client) run(ctx context.Context, out io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, string(c.engine), args...)
	cmd.Stdout, cmd.Stderr = out, c.says
	if err := cmd.Run(); err != nil {
		return exit.Errorf(exit.Failed, "", "%s %s: %v", c.engine, args[0], err)
	}
	return nil
}

// build returns the digest of an image that it builds.
func (c client) build(ctx context.Context, folder string, o Options) (id string, err error) {
	file := filepath.Join(c.scratch, "id")
	args := []string{"build", "--iidfile", file, "--file", o.File}
	for _, arg := range o.Args {
		args = append(args, "--build-arg", arg)
	}
	if err := c.run(ctx, c.says, append(args, folder)...); err != nil {
		return "", err
	}
	return digestIn(os.ReadFile(file))
}

// push returns the reference of an image that it pushes. The registry's digest is that of what was sent, in which
// layers are compressed: podman writes it into a file, docker into what it knows of the image.
func (c client) push(ctx context.Context, tag string) (reference string, err error) {
	name, _, _ := strings.Cut(path.Base(tag), ":")
	name = path.Join(path.Dir(tag), name)
	if c.engine == engine.Podman {
		file := filepath.Join(c.scratch, "digest")
		if err := c.run(ctx, c.says, "push", "--digestfile", file, tag); err != nil {
			return "", err
		}
		digest, err := digestIn(os.ReadFile(file))
		return name + "@" + digest, err
	}
	if err := c.run(ctx, c.says, "push", tag); err != nil {
		return "", err
	}
	var known strings.Builder
	if err := c.run(ctx, &known, "image", "inspect", "--format", "{{json .RepoDigests}}", tag); err != nil {
		return "", err
	}
	var references []string
	if err := json.Unmarshal([]byte(known.String()), &references); err != nil {
		return "", fmt.Errorf("read the digests of %s: %w", tag, err)
	}
	for _, r := range references {
		if of, digest, _ := strings.Cut(r, "@"); of == name || strings.HasSuffix(name, "/"+of) {
			return name + "@" + digest, nil
		}
	}
	return "", fmt.Errorf("%s %w", tag, errNoDigest)
}

var errNoDigest = errors.New("was pushed, but the engine knows no digest of it")

// digestIn returns the digest in a file that an engine has written.
func digestIn(text []byte, err error) (string, error) {
	if err != nil {
		return "", fmt.Errorf("read the digest of the image: %w", err)
	}
	const algorithm = "sha256:"
	return algorithm + strings.TrimPrefix(strings.TrimSpace(string(text)), algorithm), nil
}

// tagOf names an image for people: after its folder and its content, unless they have given a name.
func tagOf(folder, push, id string) string {
	name := push
	if name == "" {
		plain := strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '-'
		}, strings.ToLower(filepath.Base(folder)))
		plain = strings.Join(strings.FieldsFunc(plain, func(r rune) bool { return r == '-' }), "-")
		// No registry has that name, so nobody pulls another's image by it.
		name = "localhost/switchyard/" + cmp.Or(plain, "job")
	}
	if strings.Contains(path.Base(name), ":") {
		return name
	}
	const digits = 12
	id = strings.TrimPrefix(id, "sha256:")
	return name + ":" + id[:min(len(id), digits)]
}
