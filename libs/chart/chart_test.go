package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/chart"
)

// element is one of a drawing, with the text in it.
type element struct {
	name, text string
	attr       map[string]string
}

// parse reads a drawing and fails the test if it is not well formed.
func parse(t *testing.T, svg string) []element {
	t.Helper()
	var all []element
	var open []int
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{name: token.Name.Local, attr: map[string]string{}}
			for _, a := range token.Attr {
				e.attr[a.Name.Local] = a.Value
			}
			open = append(open, len(all))
			all = append(all, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				all[open[len(open)-1]].text += string(token)
			}
		}
	}
}

func named(all []element, name string) []element {
	var some []element
	for _, e := range all {
		if e.name == name {
			some = append(some, e)
		}
	}
	return some
}

func value(t *testing.T, e element, attr string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(e.attr[attr], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func texts(all []element) string {
	var words []string
	for _, e := range named(all, "text") {
		words = append(words, e.text)
	}
	return strings.Join(words, "|")
}

func TestBarsStandOnEachOther(t *testing.T) {
	b := chart.Bars{Title: "Energy", X: "user", Y: "kWh", Names: []string{"ann", "bob"}, Series: []chart.Values{{Name: "gpu", Values: []float64{3, 1}}, {Name: "cpu", Values: []float64{1, 0}}}}
	all := parse(t, b.SVG())
	var bars []element
	for _, e := range named(all, "rect") {
		if e.attr["width"] != "10" { // the legend
			bars = append(bars, e)
		}
	}
	if len(bars) != 3 {
		t.Fatalf("%d bars: want one for each value above zero", len(bars))
	}
	gpu, cpu, bob := bars[0], bars[1], bars[2]
	near := func(x, y float64) bool { return math.Abs(x-y) < 0.05 }
	if !near(value(t, gpu, "height"), 3*value(t, bob, "height")) || !near(value(t, gpu, "height"), 3*value(t, cpu, "height")) {
		t.Errorf("heights %s, %s and %s: want 3 to 1 to 1", gpu.attr["height"], cpu.attr["height"], bob.attr["height"])
	}
	if !near(value(t, cpu, "y")+value(t, cpu, "height"), value(t, gpu, "y")) {
		t.Error("the second value of a column does not stand on the first")
	}
	if got := texts(all); got != "gpu|cpu|0|1|2|3|4|user|kWh|ann|bob" {
		t.Errorf("texts %s", got)
	}
}

func TestLinesKeepTheirOrder(t *testing.T) {
	points := []chart.Point{{X: 0, Y: 10}, {X: 50, Y: math.NaN()}, {X: 100, Y: 30}}
	all := parse(t, chart.Lines{X: "s", Y: "loss", Legend: true, Series: []chart.Line{{Name: "a", Points: points}}}.SVG())
	dots := named(all, "circle")
	if len(dots) != 2 {
		t.Fatalf("%d dots: want 2, for a value that is no number is left out", len(dots))
	}
	if value(t, dots[0], "cx") >= value(t, dots[1], "cx") || value(t, dots[0], "cy") <= value(t, dots[1], "cy") {
		t.Errorf("dots at %v and %v", dots[0].attr, dots[1].attr)
	}
	steps := parse(t, chart.Lines{Steps: true, Series: []chart.Line{{Points: points}}}.SVG())
	var path string
	for _, e := range named(steps, "path") {
		if e.attr["stroke-width"] != "" {
			path = e.attr["d"]
		}
	}
	if len(named(steps, "circle")) != 0 || strings.Count(path, "L") != 2 {
		t.Errorf("steps: path %q", path)
	}
}

// Names come from users: nothing in them may become a part of the page.
func TestNamesAreOnlyText(t *testing.T) {
	const evil = `</svg><script>alert("1")</script>`
	for _, svg := range []string{
		chart.Bars{Title: evil, X: evil, Y: evil, Names: []string{evil}, Series: []chart.Values{{Name: evil, Values: []float64{1}}}}.SVG(),
		chart.Lines{Title: evil, X: evil, Y: evil, Legend: true, Series: []chart.Line{{Name: evil, Points: []chart.Point{{X: 1, Y: 1}}}}}.SVG(),
	} {
		if len(named(parse(t, svg), "script")) > 0 || strings.Contains(svg, "<script") {
			t.Errorf("%s", svg)
		}
	}
}

func TestDrawingsOfNothing(t *testing.T) {
	for name, svg := range map[string]string{
		"no bars": chart.Bars{}.SVG(), "no lines": chart.Lines{}.SVG(), "zeros": chart.Bars{Names: []string{"a"}, Series: []chart.Values{{Values: []float64{0}}}}.SVG(),
		"short": chart.Bars{Names: []string{"a", "b"}, Series: []chart.Values{{Values: []float64{1}}}}.SVG(),
		"one":   chart.Lines{Series: []chart.Line{{Points: []chart.Point{{X: 7, Y: 7}}}}}.SVG(),
		"huge":  chart.Lines{FromZero: true, Series: []chart.Line{{Points: []chart.Point{{X: 1e300, Y: -1e300}, {X: 2e300, Y: 1e-300}}}}}.SVG(),
	} {
		if parse(t, svg); strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: %s", name, svg)
		}
	}
}
