package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/strict"
)

// FileName is the name of the configuration file.
const FileName = "switchyard.yaml"

// SystemFile is the configuration of the whole machine.
const SystemFile = "/etc/switchyard/" + FileName

// Moved is the error of a flag that no longer exists.
type Moved struct{ words string }

// Error says what to write instead.
func (e Moved) Error() string { return e.words }

// moved stands on the command line for a flag of earlier versions.
type moved struct{ words string }

// Set refuses the flag.
func (m moved) Set(string) error { return Moved(m) }

// String is empty.
func (m moved) String() string { return "" }

// Type is that of a text.
func (m moved) Type() string { return "string" }

// AddFlags adds the flags of the sections in scope (nil: of all) to a command. Settings without a flag, and those that
// no longer exist, answer with a sentence.
func (s *Set) AddFlags(fs *pflag.FlagSet, scope func(*Setting) bool) {
	stand := func(name, words string) {
		f := fs.VarPF(moved{words}, name, "", "")
		f.Hidden, f.NoOptDefVal = true, "true"
	}
	for _, setting := range s.All() {
		switch {
		case scope != nil && !scope(setting):
		case setting.typed:
			fs.AddFlag(setting.flag)
		default:
			stand(setting.Name, fmt.Sprintf("--%s is no longer a flag: set %s in %s, or %s", setting.Name, setting.Path(), FileName, setting.Variable()))
		}
	}
	for _, g := range s.gone {
		stand(g.Name, fmt.Sprintf("--%s is gone: %s", g.Name, g.Instead))
	}
}

// FlagError returns the sentence of a flag that no longer exists, and any other error as it is.
func FlagError(err error) error {
	if m, ok := errors.AsType[Moved](err); ok {
		return m
	}
	return err
}

// Locate finds the configuration file: the named one, else switchyard.yaml in the data folder, else the machine's, else
// "". Two files are never merged, and the working folder, which may belong to another user, is not searched.
func Locate(named, dataDir string) (string, error) {
	if named != "" {
		return named, nil
	}
	for _, path := range []string{filepath.Join(dataDir, FileName), SystemFile} {
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
			return "", fmt.Errorf("look for the configuration: %w", err)
		}
	}
	return "", nil
}

// Load fills the settings that the command line left alone, first from the file (path "" for none), then from the
// environment. Both may have settings of other services, since services share files and environments. All problems are
// reported at once.
func (s *Set) Load(path string, environ []string) error {
	for _, setting := range s.All() {
		if setting.flag.Changed && setting.Source == Default {
			setting.Source = Flag
		}
	}
	var errs []error
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read the configuration: %w", err)
		}
		if err := s.ReadFile(text); err != nil {
			errs = append(errs, fmt.Errorf("%s:\n%w", path, err))
		}
	}
	errs = append(errs, s.readEnvironment(environ))
	errs = append(errs, s.Validate())
	return errors.Join(errs...)
}

// Validate returns what is wrong with the values, each on its own.
func (s *Set) Validate() error {
	var errs []error
	for _, setting := range s.All() {
		errs = append(errs, setting.validate()...)
	}
	return errors.Join(errs...)
}

// ReadFile reads the text of a configuration file. The error is strict.Problems.
func (s *Set) ReadFile(text []byte) error {
	r := strict.New(strict.Options{})
	if strings.TrimSpace(withoutComments(string(text))) == "" {
		return nil // a file that sets nothing
	}
	root := r.Document(text)
	if root == nil {
		return r.Err()
	}
	for _, e := range r.Entries(root, "") {
		i := slices.IndexFunc(s.sections, func(section *Section) bool { return section.Name == e.Key })
		if i < 0 {
			s.unknownSection(r, e)
			continue
		}
		if e.Value.Kind != strict.Null { // a section whose settings are all commented out
			s.sections[i].readFile(r, &e.Value)
		}
	}
	return r.Err()
}

func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func (s *Set) unknownSection(r *strict.Reader, e *strict.Entry) {
	var names []string
	for _, section := range s.sections {
		names = append(names, section.Name)
	}
	hint := strict.Near(e.Key, names)
	for _, setting := range s.All() {
		if setting.Key == e.Key || setting.Name == e.Key {
			hint = "it belongs into the section " + setting.Section.Name + ", as " + setting.Key
		}
	}
	r.AddAt(e.Position, strict.CodeUnknown, e.Key, hint, "no such section")
}

func (s *Section) readFile(r *strict.Reader, n *strict.Node) {
	for _, e := range r.Entries(n, s.Name) {
		field := strict.Join(s.Name, e.Key)
		i := slices.IndexFunc(s.Settings, func(x *Setting) bool { return x.Key == e.Key })
		if i < 0 {
			words, hint := s.unknown(e.Key)
			r.AddAt(e.Position, strict.CodeUnknown, field, hint, "%s", words)
			continue
		}
		setting := s.Settings[i]
		keep := setting.Source != Flag || setting.added != nil
		if setting.Source != Flag {
			setting.Source, setting.line = File, int(e.Position.Line)
		}
		if e.Value.Kind == strict.Null {
			r.AddAt(e.Position, strict.CodeType, field, "leave the key out for the default", "has no value")
			continue
		}
		setting.read(r, &e.Value, field, keep)
		if setting.added != nil {
			if err := setting.added.over(); err != nil {
				r.AddAt(e.Position, strict.CodeType, field, "", "%v", err)
			}
		}
	}
}

// unknown explains a key that the section does not have.
func (s *Section) unknown(key string) (words, hint string) {
	name := strings.ReplaceAll(key, "_", "-")
	for _, g := range s.set.gone {
		if g.Name == name {
			return "is gone: " + g.Instead, ""
		}
	}
	var keys []string
	for _, setting := range s.Settings {
		keys = append(keys, setting.Key)
		if setting.Name == name {
			return "no such setting", "did you mean " + setting.Key + "?"
		}
	}
	if other := s.set.Find(name); other != nil {
		return "no such setting", "it belongs into the section " + other.Section.Name + ", as " + other.Key
	}
	return "no such setting", strict.Near(key, keys)
}

// Foreign reports variables with the product's prefix that are no settings: the tests' data folder, those of the
// command line, and those in a job's environment.
func Foreign(name string) bool {
	switch name {
	case "SWITCHYARD_DATA", "SWITCHYARD_CONTEXT", "SWITCHYARD_CONFIG", "SWITCHYARD_JOB", "SWITCHYARD_ATTEMPT", "SWITCHYARD_DEVICES",
		"SWITCHYARD_CUSTOM_DIR", "SWITCHYARD_SNAPSHOTS_DIR", "SWITCHYARD_DATASETS_DIR":
		return true
	}
	settings := []string{"SWITCHYARD_JOB_ENVIRONMENT", "SWITCHYARD_JOB_LOG_LIMIT", "SWITCHYARD_JOB_MOUNTS"}
	return strings.HasPrefix(name, "SWITCHYARD_JOB_") && !slices.Contains(settings, name)
}

// readEnvironment sets from the environment what the command line left alone. It refuses variables with the product's
// prefix that set nothing, each with the near miss.
func (s *Set) readEnvironment(environ []string) error {
	var errs []error
	byVariable := map[string]*Setting{}
	var names []string
	for _, setting := range s.All() {
		if setting.noEnv {
			continue
		}
		byVariable[setting.Variable()] = setting
		names = append(names, strings.TrimPrefix(setting.Variable(), EnvPrefix))
	}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, EnvPrefix) || Foreign(name) {
			continue
		}
		setting := byVariable[name]
		switch {
		case setting == nil:
			errs = append(errs, s.unknownVariable(name, names))
		case setting.Source == Flag:
		default:
			setting.Source = Environment
			if err := setting.flag.Value.Set(value); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (s *Set) unknownVariable(name string, known []string) error {
	for _, g := range s.gone {
		if variable(g.Name) == name {
			return fmt.Errorf("environment variable %s is gone: %s", name, g.Instead)
		}
	}
	hint := strict.Near(strings.TrimPrefix(name, EnvPrefix), known)
	if hint != "" {
		hint = " (" + strings.Replace(hint, "did you mean ", "did you mean "+EnvPrefix, 1) + ")"
	}
	return fmt.Errorf("environment variable %s sets nothing%s", name, hint)
}

// Apply sets settings from words such as --plan-interval 5s or --plan-interval=5s, whether they have a flag or not: for
// programs that make their own processes, and tests.
func (s *Set) Apply(words ...string) error {
	if err := s.values.Parse(words); err != nil {
		return err
	}
	return s.Load("", nil)
}

// CommandLine is the flags of a command that reads the configuration.
type CommandLine struct {
	set   *Set
	named string
}

// CommandLine adds --config and the flags of the settings in scope (nil: of all) to a command.
func (s *Set) CommandLine(fs *pflag.FlagSet, scope func(*Setting) bool) *CommandLine {
	c := &CommandLine{set: s}
	fs.StringVar(&c.named, "config", "", "`FILE` with the configuration (default: $"+EnvPrefix+"CONFIG, else "+FileName+" in the data folder, else "+SystemFile+")")
	s.AddFlags(fs, scope)
	return c
}

// Load finds and reads the file once the command line is parsed, and returns its path, or "".
func (c *CommandLine) Load(environ []string) (string, error) {
	variables := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		variables[name] = value
	}
	named := c.named
	if named == "" {
		named = variables[EnvPrefix+"CONFIG"]
	}
	folder := ""
	if s := c.set.Find("data-dir"); s != nil {
		folder = s.flag.Value.String()
		if value, given := variables[s.Variable()]; given && !s.flag.Changed {
			folder = value
		}
	}
	path, err := Locate(named, folder)
	if err != nil {
		return "", err
	}
	return path, c.set.Load(path, environ)
}
