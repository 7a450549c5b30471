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

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// The kinds of parameters.
const (
	Choice     = contract.KindChoice
	Uniform    = contract.KindUniform
	LogUniform = contract.KindLogUniform
	Int        = contract.KindInt
	LogInt     = contract.KindLogInt
)

// Kinds lists them.
func Kinds() []contract.ParameterKind {
	return []contract.ParameterKind{Choice, Uniform, LogUniform, Int, LogInt}
}

// Params are the values of a trial by the names of its parameters. A parameter whose condition does not hold is absent.
type Params map[string]contract.Value

// dimension is a parameter as the searches use it.
type dimension contract.Parameter

// Space is the set of points of a search. A parameter comes after those that its condition names.
type Space []contract.Parameter

// mostWhole bounds whole numbers to those that a float64 represents exactly.
const mostWhole = 1 << 53

// Check returns all errors of the space.
func (s Space) Check() error {
	var errs []error
	if len(s) == 0 {
		errs = append(errs, errors.New("a search space needs a parameter"))
	}
	for i, p := range s {
		if slices.ContainsFunc(s[:i], func(q contract.Parameter) bool { return q.Name == p.Name }) {
			errs = append(errs, fmt.Errorf("parameter %s: given twice", p.Name))
		}
		if err := dimension(p).check(s[:i]); err != nil {
			errs = append(errs, fmt.Errorf("parameter %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (p dimension) check(earlier Space) error {
	if err := p.checkValues(); err != nil || p.When == nil {
		return err
	}
	i := slices.IndexFunc(earlier, func(q contract.Parameter) bool { return q.Name == p.When.Parameter })
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

func (p dimension) checkValues() error {
	switch p.Kind {
	case Choice:
		return p.checkChoice()
	case Uniform, LogUniform, Int, LogInt:
		return p.checkRange()
	}
	return fmt.Errorf("kind %q: want choice, uniform, log_uniform, int or log_int", p.Kind)
}

func (p dimension) checkChoice() error {
	if len(p.Values) == 0 {
		return errors.New("a choice needs a value")
	}
	for i, v := range p.Values {
		if slices.Contains(p.Values[:i], v) {
			return fmt.Errorf("%s is given twice", v)
		}
	}
	return nil
}

func (p dimension) checkRange() error {
	finite := func(x float64) bool { return math.Abs(x) <= math.MaxFloat64/4 }
	whole := func(x float64) bool { return x == math.Trunc(x) && math.Abs(x) <= mostWhole }
	switch {
	case !finite(p.Low) || !finite(p.High) || p.Low > p.High:
		return fmt.Errorf("want a range [low, high], found [%g, %g]", p.Low, p.High)
	case (p.Kind == LogUniform || p.Kind == LogInt) && p.Low <= 0:
		return fmt.Errorf("a logarithmic range begins above 0, found %g", p.Low)
	case (p.Kind == Int || p.Kind == LogInt) && !(whole(p.Low) && whole(p.High)):
		return fmt.Errorf("want whole numbers, found [%g, %g]", p.Low, p.High)
	}
	return nil
}

// at returns the value at u, 0 to 1.
func (p dimension) at(u float64) contract.Value {
	u = min(max(u, 0), 1)
	between := func(low, high float64) float64 { return low + u*(high-low) }
	switch p.Kind {
	case Choice:
		return p.Values[min(int(u*float64(len(p.Values))), len(p.Values)-1)]
	case LogUniform:
		return contract.Number(min(max(math.Exp(between(math.Log(p.Low), math.Log(p.High))), p.Low), p.High))
	case Int:
		return contract.Number(min(math.Floor(between(p.Low, p.High+1)), p.High))
	case LogInt:
		return contract.Number(min(max(math.Floor(math.Exp(between(math.Log(p.Low), math.Log(p.High+1)))), p.Low), p.High))
	case Uniform:
	}
	return contract.Number(between(p.Low, p.High))
}

// unit is the inverse of at; for whole numbers and choices it is the middle of their part of the unit interval.
func (p dimension) unit(v contract.Value) float64 {
	x, _ := v.Float()
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
		return within(math.Log(x), math.Log(p.Low), math.Log(p.High))
	case Int:
		return within(x+0.5, p.Low, p.High+1)
	case LogInt:
		return within(math.Log(x+0.5), math.Log(p.Low), math.Log(p.High+1))
	case Uniform:
	}
	return within(x, p.Low, p.High)
}

// ordered reports whether neighbouring values have similar effects.
func (p dimension) ordered() bool {
	return !slices.ContainsFunc(p.Values, func(v contract.Value) bool { return !v.IsNumber() })
}

// exists reports whether the parameter exists given the values of earlier ones.
func (p dimension) exists(params Params) bool {
	if p.When == nil {
		return true
	}
	v, ok := params[p.When.Parameter]
	return ok && slices.Contains(p.When.In, v)
}

// At returns the point at coordinates in the unit cube, one for each parameter.
func (s Space) At(unit []float64) Params {
	params := Params{}
	for i, p := range s {
		if dimension(p).exists(params) {
			params[p.Name] = dimension(p).at(unit[i])
		}
	}
	return params
}

// absent is the coordinate of a parameter that a point lacks.
const absent = -1

// coordinates is the inverse of At.
func (s Space) coordinates(params Params) []float64 {
	unit := make([]float64, len(s))
	for i, p := range s {
		unit[i] = absent
		if v, ok := params[p.Name]; ok {
			unit[i] = dimension(p).unit(v)
		}
	}
	return unit
}

// key is equal only for equal points.
func (s Space) key(params Params) string {
	var b strings.Builder
	for _, p := range s {
		if v, ok := params[p.Name]; ok {
			fmt.Fprintf(&b, "%q=%t%q ", p.Name, v.IsNumber(), v.String())
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

// All returns the points of a grid, the last parameter fastest: every value of choices, and a number of levels of
// ranges.
func (s Space) All(levels int) iter.Seq[Params] {
	return func(yield func(Params) bool) { s.extend(Params{}, levels, yield) }
}

// extend yields all points that begin with some values.
func (s Space) extend(params Params, levels int, yield func(Params) bool) bool {
	if len(s) == 0 {
		return yield(maps.Clone(params))
	}
	p, rest := s[0], s[1:]
	if !dimension(p).exists(params) {
		return rest.extend(params, levels, yield)
	}
	defer delete(params, p.Name)
	for _, v := range dimension(p).levels(levels) {
		params[p.Name] = v
		if !rest.extend(params, levels, yield) {
			return false
		}
	}
	return true
}

// levels returns the values of a choice, or n values of a range from one end to the other. A range of at most n whole
// numbers gives all of them: those that lie closer together on a logarithmic scale than two levels are consecutive.
func (p dimension) levels(n int) []contract.Value {
	if p.Kind == Choice {
		return p.Values
	}
	whole := p.Kind == Int || p.Kind == LogInt
	if whole && p.High-p.Low < float64(n) {
		n = int(p.High-p.Low) + 1
	}
	var values []contract.Value
	last := 0.0
	for i := range n {
		u := 0.5
		if n > 1 {
			u = float64(i) / float64(n-1)
		}
		v := p.at(u)
		if whole {
			x, _ := v.Float()
			if i > 0 {
				x = max(x, last+1)
			}
			v, last = contract.Number(x), x
		}
		if whole || !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

// Finite returns all points of a space with at most this many points; false for larger spaces.
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
