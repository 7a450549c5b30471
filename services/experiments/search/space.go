package search

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Kind says which values a parameter may have.
type Kind string

// The kinds. Both ends of a range belong to it.
const (
	Choice     Kind = "choice"      // one of Values
	Uniform    Kind = "uniform"     // any number from Low to High
	LogUniform Kind = "log_uniform" // likewise, each decade as likely as another
	Int        Kind = "int"         // a whole number from Low to High
	LogInt     Kind = "log_int"     // likewise, each decade as likely as another
)

// Kinds lists them.
func Kinds() []Kind { return []Kind{Choice, Uniform, LogUniform, Int, LogInt} }

// Parameter is one dimension of a space.
type Parameter struct {
	Name   string     `json:"name"`
	Kind   Kind       `json:"kind"`
	Values []Value    `json:"values,omitempty"` // of a choice; taken as ordered where all are numbers
	Low    float64    `json:"low,omitempty"`
	High   float64    `json:"high,omitempty"`
	When   *Condition `json:"when,omitempty"`
}

// Condition makes a parameter exist only where an earlier one, a choice, has one of some values.
type Condition struct {
	Parameter string  `json:"parameter"`
	In        []Value `json:"in"`
}

// Space is what a search may choose from. A parameter comes after those that its condition names.
type Space []Parameter

// mostWhole bounds whole numbers to those that a float64 holds exactly.
const mostWhole = 1 << 53

// Check names everything that is wrong with the space.
func (s Space) Check() error {
	var errs []error
	if len(s) == 0 {
		errs = append(errs, errors.New("a search space needs a parameter"))
	}
	for i, p := range s {
		if slices.ContainsFunc(s[:i], func(q Parameter) bool { return q.Name == p.Name }) {
			errs = append(errs, fmt.Errorf("parameter %s: given twice", p.Name))
		}
		if err := p.check(s[:i]); err != nil {
			errs = append(errs, fmt.Errorf("parameter %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (p Parameter) check(earlier Space) error {
	if err := p.checkValues(); err != nil || p.When == nil {
		return err
	}
	i := slices.IndexFunc(earlier, func(q Parameter) bool { return q.Name == p.When.Parameter })
	if i < 0 || earlier[i].Kind != Choice {
		return fmt.Errorf("when: want a choice that comes before, found %q", p.When.Parameter)
	}
	for _, v := range p.When.In {
		if !slices.Contains(earlier[i].Values, v) {
			return fmt.Errorf("when: %s is never %s", p.When.Parameter, v)
		}
	}
	return nil
}

func (p Parameter) checkValues() error {
	finite := func(x float64) bool { return math.Abs(x) <= math.MaxFloat64/4 }
	switch p.Kind {
	case Choice:
		if len(p.Values) == 0 {
			return errors.New("a choice needs a value")
		}
		for i, v := range p.Values {
			if slices.Contains(p.Values[:i], v) {
				return fmt.Errorf("%s is given twice", v)
			}
		}
		return nil
	case Uniform, LogUniform, Int, LogInt:
	default:
		return fmt.Errorf("kind %q: want choice, uniform, log_uniform, int or log_int", p.Kind)
	}
	log, whole := p.Kind == LogUniform || p.Kind == LogInt, p.Kind == Int || p.Kind == LogInt
	switch {
	case !finite(p.Low) || !finite(p.High) || p.Low > p.High:
		return fmt.Errorf("want a range [low, high], found [%g, %g]", p.Low, p.High)
	case log && p.Low <= 0:
		return fmt.Errorf("a logarithmic range begins above 0, found %g", p.Low)
	case whole && (p.Low != math.Trunc(p.Low) || p.High != math.Trunc(p.High) || math.Abs(p.Low) > mostWhole || math.Abs(p.High) > mostWhole):
		return fmt.Errorf("want whole numbers, found [%g, %g]", p.Low, p.High)
	}
	return nil
}

// at is the value at u, 0 to 1.
func (p Parameter) at(u float64) Value {
	u = min(max(u, 0), 1)
	between := func(low, high float64) float64 { return low + u*(high-low) }
	switch p.Kind {
	case Choice:
		return p.Values[min(int(u*float64(len(p.Values))), len(p.Values)-1)]
	case LogUniform:
		return Number(min(max(math.Exp(between(math.Log(p.Low), math.Log(p.High))), p.Low), p.High))
	case Int:
		return Number(min(math.Floor(between(p.Low, p.High+1)), p.High))
	case LogInt:
		return Number(min(max(math.Floor(math.Exp(between(math.Log(p.Low), math.Log(p.High+1)))), p.Low), p.High))
	case Uniform:
	}
	return Number(between(p.Low, p.High))
}

// unit is the inverse of at; of whole numbers and choices it is the middle of their part of the unit interval.
func (p Parameter) unit(v Value) float64 {
	within := func(x, low, high float64) float64 {
		if high <= low {
			return 0.5
		}
		return min(max((x-low)/(high-low), 0), 1)
	}
	switch p.Kind {
	case Choice:
		return (float64(slices.Index(p.Values, v)) + 0.5) / float64(len(p.Values))
	case LogUniform:
		return within(math.Log(v.number), math.Log(p.Low), math.Log(p.High))
	case Int:
		return within(v.number+0.5, p.Low, p.High+1)
	case LogInt:
		return within(math.Log(v.number+0.5), math.Log(p.Low), math.Log(p.High+1))
	case Uniform:
	}
	return within(v.number, p.Low, p.High)
}

// ordered says whether values that lie near each other are alike.
func (p Parameter) ordered() bool {
	return !slices.ContainsFunc(p.Values, func(v Value) bool { return !v.isNumber })
}

// exists says whether a parameter is one where the earlier ones have these values.
func (p Parameter) exists(params Params) bool {
	if p.When == nil {
		return true
	}
	v, ok := params[p.When.Parameter]
	return ok && slices.Contains(p.When.In, v)
}

// At gives the point at coordinates in the unit cube, one for each parameter.
func (s Space) At(unit []float64) Params {
	params := Params{}
	for i, p := range s {
		if p.exists(params) {
			params[p.Name] = p.at(unit[i])
		}
	}
	return params
}

// absent is the coordinate of a parameter that a point does not have.
const absent = -1

// coordinates is the inverse of At.
func (s Space) coordinates(params Params) []float64 {
	unit := make([]float64, len(s))
	for i, p := range s {
		unit[i] = absent
		if v, ok := params[p.Name]; ok {
			unit[i] = p.unit(v)
		}
	}
	return unit
}

// key is the same for equal points alone.
func (s Space) key(params Params) string {
	var b strings.Builder
	for _, p := range s {
		if v, ok := params[p.Name]; ok {
			fmt.Fprintf(&b, "%q=%t%q ", p.Name, v.isNumber, v.String())
		}
	}
	return b.String()
}

// random draws a point.
func (s Space) random(r *rand.Rand) Params {
	unit := make([]float64, len(s))
	for i := range unit {
		unit[i] = r.Float64()
	}
	return s.At(unit)
}

// All gives the points of a grid, the last parameter fastest: every value of choices, so many levels of ranges.
func (s Space) All(levels int) iter.Seq[Params] {
	return func(yield func(Params) bool) { s.extend(Params{}, levels, yield) }
}

// extend gives all points that begin with some values.
func (s Space) extend(params Params, levels int, yield func(Params) bool) bool {
	if len(s) == 0 {
		return yield(maps.Clone(params))
	}
	p, rest := s[0], s[1:]
	if !p.exists(params) {
		return rest.extend(params, levels, yield)
	}
	defer delete(params, p.Name)
	for _, v := range p.levels(levels) {
		params[p.Name] = v
		if !rest.extend(params, levels, yield) {
			return false
		}
	}
	return true
}

// levels are the values of a choice, or so many values of a range from one end to the other. Of whole numbers they are all where there are no more: those that lie
// closer together on a logarithmic scale than two levels come one after the other.
func (p Parameter) levels(n int) []Value {
	if p.Kind == Choice {
		return p.Values
	}
	whole := p.Kind == Int || p.Kind == LogInt
	if whole && p.High-p.Low < float64(n) {
		n = int(p.High-p.Low) + 1
	}
	var values []Value
	for i := range n {
		u := 0.5
		if n > 1 {
			u = float64(i) / float64(n-1)
		}
		v := p.at(u)
		if whole && i > 0 {
			v = Number(max(v.number, values[i-1].number+1))
		}
		if whole || !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

// Finite gives all points of a space that has at most so many; false for others.
func (s Space) Finite(most int) (points []Params, ok bool) {
	for _, p := range s {
		span := p.High - p.Low
		if p.Kind != Choice && span > 0 && (p.Kind == Uniform || p.Kind == LogUniform || span >= float64(most)) {
			return nil, false
		}
	}
	for params := range s.All(most) {
		if len(points) == most {
			return nil, false
		}
		points = append(points, params)
	}
	return points, true
}
