// Package config declares each setting once; its flag, its environment variable, its key in switchyard.yaml, the
// reference and the schema for editors follow. A value comes from the command line, else from the environment, else
// from the file, else it is the default.
//
// The package knows no setting itself: libs/settings declares them.
package config

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// EnvPrefix begins every environment variable that is a setting: SWITCHYARD_LOG_LEVEL is --log-level.
const EnvPrefix = "SWITCHYARD_"

// Source says where a value comes from.
type Source string

// The sources, the strongest last.
const (
	Default     Source = "default"
	File        Source = "file"
	Environment Source = "environment"
	Flag        Source = "flag"
)

// Set is all settings of a process.
type Set struct {
	sections []*Section
	gone     []Gone
	values   *pflag.FlagSet
}

// Section is an object of the file: the settings of one service, or settings that all share.
type Section struct {
	Name, About string
	Settings    []*Setting
	set         *Set
}

// Gone is a setting of earlier versions.
type Gone struct {
	// Name is the flag's name. Instead says what replaces it.
	Name, Instead string
}

// Setting is one setting.
type Setting struct {
	Section *Section
	// Name is the name of the flag, with dashes; Key is the key in the file, with underscores.
	Name, Key, Help string
	Source          Source

	kind    kind
	typed   bool
	secret  bool
	noEnv   bool
	shown   string
	choices []string
	anyCase bool
	low     *float64
	high    *float64
	checks  []func() error
	flag    *pflag.Flag
	// added is set if the flag adds to the list of the file.
	added *adding
	line  int
	// read reads the value from the file. It is kept only if keep is set.
	read func(r *strict.Reader, n *strict.Node, field string, keep bool)
	// show is the value in words if pflag's form is hard to read.
	show func() string
	// number is the value of a number, or a duration in seconds.
	number func() float64
}

// kind is the type of a setting's value.
type kind int

const (
	kindText kind = iota
	kindWhole
	kindNumber
	kindBool
	kindDuration
	kindTexts
	kindNumbers
	kindTextMap
	kindWholeMap
)

// New makes an empty set.
func New() *Set {
	fs := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	fs.SortFlags = false
	return &Set{values: fs}
}

// Section opens a section of the file.
func (s *Set) Section(name, about string) *Section {
	section := &Section{Name: name, About: about, set: s}
	s.sections = append(s.sections, section)
	return section
}

// Sections are all sections, in the order of their declaration.
func (s *Set) Sections() []*Section { return s.sections }

// Gone notes settings that no longer exist. Setting one is an error that names its replacement.
func (s *Set) Gone(list ...Gone) { s.gone = append(s.gone, list...) }

// All are all settings.
func (s *Set) All() []*Setting {
	var all []*Setting
	for _, section := range s.sections {
		all = append(all, section.Settings...)
	}
	return all
}

// Find returns the setting of a flag's name, or nil.
func (s *Set) Find(name string) *Setting {
	for _, setting := range s.All() {
		if setting.Name == name {
			return setting
		}
	}
	return nil
}

// Given reports whether a setting has another source than its default.
func (s *Set) Given(name string) bool {
	setting := s.Find(name)
	return setting != nil && setting.Source != Default
}

// Put sets a value that neither flag, variable nor file has set.
func (s *Set) Put(name, value string) error { return s.Find(name).flag.Value.Set(value) }

func (s *Section) add(name, help string, k kind) *Setting {
	flag := s.set.values.Lookup(name)
	flag.Usage = strings.ReplaceAll(help, "`", "") // which pflag takes for the name of the value
	setting := &Setting{Section: s, Name: name, Key: strings.ReplaceAll(name, "-", "_"), Help: help, Source: Default, kind: k, flag: flag}
	s.Settings = append(s.Settings, setting)
	return setting
}

// String declares a text.
func (s *Section) String(p *string, name, value, help string) *Setting {
	s.set.values.StringVar(p, name, value, help)
	return fileValue(s.add(name, help, kindText), p)
}

// Int declares a whole number.
func (s *Section) Int(p *int, name string, value int, help string) *Setting {
	s.set.values.IntVar(p, name, value, help)
	setting := fileValue(s.add(name, help, kindWhole), p)
	setting.number = func() float64 { return float64(*p) }
	return setting
}

// Float declares a number.
func (s *Section) Float(p *float64, name string, value float64, help string) *Setting {
	s.set.values.Float64Var(p, name, value, help)
	setting := fileValue(s.add(name, help, kindNumber), p)
	setting.number = func() float64 { return *p }
	return setting
}

// Bool declares a switch.
func (s *Section) Bool(p *bool, name string, value bool, help string) *Setting {
	s.set.values.BoolVar(p, name, value, help)
	return fileValue(s.add(name, help, kindBool), p)
}

// Duration declares a duration, written as 90s or 1h30m.
func (s *Section) Duration(p *time.Duration, name string, value time.Duration, help string) *Setting {
	s.set.values.DurationVar(p, name, value, help)
	setting := s.add(name, help, kindDuration)
	setting.number = func() float64 { return p.Seconds() }
	setting.read = func(r *strict.Reader, n *strict.Node, field string, keep bool) {
		d, err := time.ParseDuration(n.Text)
		switch {
		case n.Kind == strict.Reported:
		case n.Kind != strict.Text && n.Text != "0" || err != nil:
			r.AddAt(n.Position, strict.CodeType, field, "write it as 90s or 1h30m", "want a duration, found %v", n)
		case keep:
			*p = d
		}
	}
	return setting
}

// Strings declares a list of texts. Its flag may be repeated.
func (s *Section) Strings(p *[]string, name string, value []string, help string) *Setting {
	s.set.values.StringArrayVar(p, name, value, help)
	return fileValue(s.add(name, help, kindTexts), p)
}

// Words declares a list of texts that have no commas; a flag or variable may hold several.
func (s *Section) Words(p *[]string, name string, value []string, help string) *Setting {
	s.set.values.StringSliceVar(p, name, value, help)
	return fileValue(s.add(name, help, kindTexts), p)
}

// Floats declares a list of numbers.
func (s *Section) Floats(p *[]float64, name string, value []float64, help string) *Setting {
	s.set.values.Float64SliceVar(p, name, value, help)
	setting := fileValue(s.add(name, help, kindNumbers), p)
	setting.show = func() string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(*p), " ", ", "), "[]") }
	return setting
}

// TextMap declares texts by name.
func (s *Section) TextMap(p *map[string]string, name string, help string) *Setting {
	s.set.values.StringToStringVar(p, name, nil, help)
	return fileValue(s.add(name, help, kindTextMap), p)
}

// IntMap declares whole numbers by name.
func (s *Section) IntMap(p *map[string]int, name string, help string) *Setting {
	s.set.values.StringToIntVar(p, name, nil, help)
	return fileValue(s.add(name, help, kindWholeMap), p)
}

func fileValue[T any](s *Setting, p *T) *Setting {
	s.read = func(r *strict.Reader, n *strict.Node, field string, keep bool) {
		var value T
		r.Bind(n, field, &value)
		if keep {
			*p = value
		}
	}
	return s
}

// Flag gives the setting a flag: people type it. Other settings are keys of the file and variables only.
func (s *Setting) Flag() *Setting {
	s.typed = true
	return s
}

// As gives the key that the setting has in its section.
func (s *Setting) As(key string) *Setting {
	s.Key = key
	return s
}

// Adds says that the flag or the variable of a list adds to the list of the file, or to the default.
func (s *Setting) Adds() *Setting {
	if list, ok := s.flag.Value.(pflag.SliceValue); ok {
		s.added = &adding{Value: s.flag.Value, list: list}
		s.flag.Value = s.added
	}
	return s
}

// adding is a list to which each use of its flag adds.
type adding struct {
	pflag.Value
	list pflag.SliceValue
	// given are the texts that were added.
	given []string
}

// Set adds a text to the list.
func (a *adding) Set(text string) error {
	a.given = append(a.given, text)
	return a.list.Append(text)
}

// over puts what was added behind another list.
func (a *adding) over() error { return a.list.Replace(slices.Concat(a.list.GetSlice(), a.given)) }

// Secret hides the value when settings are printed.
func (s *Setting) Secret() *Setting {
	s.secret = true
	return s
}

// NoVariable says that the environment variable of this name means something else.
func (s *Setting) NoVariable() *Setting {
	s.noEnv = true
	return s
}

// Shown says in words what the default is if it depends on the machine.
func (s *Setting) Shown(words string) *Setting {
	s.shown = words
	return s
}

// OneOf lists the values that a text may have.
func (s *Setting) OneOf(choices ...string) *Setting {
	s.choices = choices
	if !strings.Contains(s.Help, choices[0]) {
		s.flag.Usage += ": " + train.JoinOr(choices)
	}
	return s
}

// AnyCase says that the values of OneOf may be written in capitals.
func (s *Setting) AnyCase() *Setting {
	s.anyCase = true
	return s
}

// Between bounds a number, or a duration in seconds; both bounds are values that it may have.
func (s *Setting) Between(low, high float64) *Setting {
	s.low, s.high = &low, &high
	return s
}

// AtLeast bounds a number, or a duration in seconds, from below.
func (s *Setting) AtLeast(low float64) *Setting {
	s.low = &low
	return s
}

// Check adds a condition that the value must fulfil. The error says what is wanted.
func (s *Setting) Check(f func() error) *Setting {
	s.checks = append(s.checks, f)
	return s
}

// Path is the setting in the file: planner.plan_interval.
func (s *Setting) Path() string { return s.Section.Name + "." + s.Key }

// Variable is the setting's environment variable, or "".
func (s *Setting) Variable() string {
	if s.noEnv {
		return ""
	}
	return variable(s.Name)
}

func variable(name string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Typed reports whether the setting has a flag.
func (s *Setting) Typed() bool { return s.typed }

// Value is the value in words. A secret is not shown, nor are the name and the password in a URL.
func (s *Setting) Value() string {
	value := s.flag.Value.String()
	if s.secret && value != "" {
		return "(set)"
	}
	if s.show != nil {
		return s.show()
	}
	return withoutUser(s.bare(value))
}

// withoutUser hides who signs in, and how, at a URL.
func withoutUser(text string) string {
	u, err := url.Parse(text)
	if err != nil && strings.Contains(text, "://") && strings.Contains(text, "@") {
		return "(no URL)"
	}
	if err != nil || u.User == nil {
		return text
	}
	u.User = url.User("xxxxx")
	return u.String()
}

// DefaultText is the default in words.
func (s *Setting) DefaultText() string {
	if s.shown != "" {
		return s.shown
	}
	return s.bare(s.flag.DefValue)
}

// bare takes off the brackets that pflag puts around lists.
func (s *Setting) bare(value string) string {
	if s.kind < kindTexts {
		return value
	}
	return strings.TrimSuffix(strings.TrimPrefix(value, "["), "]")
}

// given names the setting as the user gave it, for an error.
func (s *Setting) given() string {
	switch s.Source {
	case Flag:
		return "--" + s.Name
	case Environment:
		return s.Variable()
	case File:
		return fmt.Sprintf("line %d: %s", s.line, s.Path())
	case Default:
	}
	return s.Path()
}

// validate returns what is wrong with the value.
func (s *Setting) validate() []error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s %s: %s", s.given(), s.Value(), fmt.Sprintf(format, args...)))
	}
	if value := s.flag.Value.String(); len(s.choices) > 0 && !s.isChoice(value) {
		hint := strict.Near(value, s.choices)
		if hint != "" {
			hint = " (" + hint + ")"
		}
		wrong("want %s%s", train.JoinOr(s.choices), hint)
	}
	if s.number != nil {
		if x := s.number(); !(s.low == nil || x >= *s.low) || !(s.high == nil || x <= *s.high) {
			wrong("want %s", s.span())
		}
	}
	for _, check := range s.checks {
		if err := check(); err != nil {
			wrong("%v", err)
		}
	}
	return errs
}

func (s *Setting) isChoice(value string) bool {
	return slices.Contains(s.choices, value) || s.anyCase && slices.Contains(s.choices, strings.ToLower(value))
}

// span returns the bounds in words.
func (s *Setting) span() string {
	words := func(x float64) string {
		if s.kind == kindDuration {
			return time.Duration(x * float64(time.Second)).String()
		}
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	switch {
	case s.low == nil && s.high == nil:
		return ""
	case s.high == nil, *s.high == math.MaxFloat64:
		return words(*s.low) + " or more"
	case s.low == nil:
		return words(*s.high) + " or less"
	}
	return words(*s.low) + " to " + words(*s.high)
}

// Above asks for a number, or a duration in seconds, that is larger than low.
func (s *Setting) Above(low float64) *Setting {
	return s.Check(func() error {
		if !(s.number() > low) {
			return fmt.Errorf("want more than %v", low)
		}
		return nil
	})
}

// Below asks for a number that is smaller than high.
func (s *Setting) Below(high float64) *Setting {
	return s.Check(func() error {
		if !(s.number() < high) {
			return fmt.Errorf("want less than %v", high)
		}
		return nil
	})
}
