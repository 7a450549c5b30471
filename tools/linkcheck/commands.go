package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// foreign lists the flags of other programs that pages name alone.
const foreign = "--kwok-nodes --kwok-gpus --kwok-gpu-units --no-kubelet --dir --build-arg --root-dir --flag --total-executor-cores --executor-cores --executor-memory --model-prefix --load-epoch --exclusive --signal --dependency"

var (
	inline     = regexp.MustCompile("`([^`\n]+)`")
	indented   = regexp.MustCompile("(?m)^    (.*)$")
	fenced     = regexp.MustCompile("(?ms)^```\\w*\n(.*?)^```")
	program    = regexp.MustCompile(`^(?:\.?/?bin/)?(switchyard(?:-lab|-server)?) (.*)`)
	flagName   = regexp.MustCompile(`^--[a-z][a-z0-9-]+`)
	flagInHelp = regexp.MustCompile(`--[a-z][a-z0-9-]+`)
	section    = regexp.MustCompile(`(?m)^(.+):\n((?:  [a-z].*\n)+)`)
)

// programs holds the commands and flags of the programs in a folder, as they print them with --help.
type programs struct {
	folder string
	help   map[string]string
	flags  map[string]bool
}

// newPrograms reads the help of all commands of the programs in folder. Flags that the page reference lists count too.
func newPrograms(ctx context.Context, folder, reference string) (*programs, error) {
	p := &programs{folder: folder, help: map[string]string{}, flags: map[string]bool{}}
	for _, name := range []string{"switchyard", "switchyard-lab", "switchyard-server"} {
		if err := p.read(ctx, name); err != nil {
			return nil, err
		}
	}
	page, err := os.ReadFile(reference)
	for _, name := range append(flagInHelp.FindAllString(string(page), -1), strings.Fields(foreign)...) {
		p.flags[name] = true
	}
	return p, err
}

// read enters the help of a command, such as "switchyard net plan", and of those below it.
func (p *programs) read(ctx context.Context, command string) error {
	words := strings.Fields(command)
	text, err := exec.CommandContext(ctx, filepath.Join(p.folder, words[0]), append(words[1:], "--help")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s --help: %w: %s", command, err, text)
	}
	p.help[command] = string(text)
	for _, name := range flagInHelp.FindAllString(string(text), -1) {
		p.flags[name] = true
	}
	for _, name := range subcommands(string(text)) {
		if err := p.read(ctx, command+" "+name); err != nil {
			return err
		}
	}
	return nil
}

// subcommands returns the commands that a help text lists, in groups with titles of their own or in one.
func subcommands(help string) []string {
	var names []string
	for _, match := range section.FindAllStringSubmatch(help, -1) {
		if slices.Contains([]string{"Usage", "Aliases", "Examples"}, match[1]) {
			continue
		}
		for line := range strings.SplitSeq(strings.TrimSpace(match[2]), "\n") {
			if name := strings.Fields(line)[0]; name != "help" {
				names = append(names, name)
			}
		}
	}
	return names
}

// missing returns the commands and flags in a page that do not exist.
func (p *programs) missing(page string) []string {
	var found []string
	page = strings.ReplaceAll(page, "\\\n", " ")
	for _, match := range inline.FindAllStringSubmatch(page, -1) {
		found = append(found, p.missingIn(match[1])...)
		if name := flagName.FindString(match[1]); name != "" && !p.flags[name] {
			found = append(found, "no command has the flag "+name)
		}
	}
	for _, match := range append(fenced.FindAllStringSubmatch(page, -1), indented.FindAllStringSubmatch(page, -1)...) {
		for line := range strings.SplitSeq(match[1], "\n") {
			found = append(found, p.missingIn(line)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// missingIn returns what is missing for one line of shell.
func (p *programs) missingIn(line string) []string {
	var found []string
	line, _, _ = strings.Cut(line, " # ")
	for _, part := range regexp.MustCompile(`&&|[|;]`).Split(line, -1) {
		match := program.FindStringSubmatch(strings.TrimSpace(part))
		if match == nil {
			continue
		}
		command := match[1]
		for word := range strings.FieldsSeq(match[2]) {
			if word == "--" {
				break
			}
			name := flagName.FindString(word)
			below := p.help[command+" "+word] != ""
			switch {
			case below:
				command += " " + word
			case name != "" && !regexp.MustCompile(regexp.QuoteMeta(name)+`\b`).MatchString(p.help[command]):
				found = append(found, fmt.Sprintf("%s has no flag %s", command, name))
			case name == "" && command == match[1] && regexp.MustCompile(`^[a-z]+$`).MatchString(word):
				found = append(found, fmt.Sprintf("%s has no command %s", command, word))
			}
		}
	}
	return found
}

// checkCommands returns one line for each command and flag in the pages under root that no program in folder has.
func checkCommands(ctx context.Context, root, folder string) ([]string, error) {
	p, err := newPrograms(ctx, folder, filepath.Join(root, "docs/configuration.md"))
	if err != nil {
		return nil, err
	}
	var findings []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "examples/*/*.md", "libs/python/*.md"} {
		pages, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				return nil, err
			}
			for _, missing := range p.missing(string(text)) {
				findings = append(findings, page+": "+missing)
			}
		}
	}
	return findings, nil
}
