package strict

import (
	"encoding"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bind reads n into target, a pointer whose type says what is wanted: structs with json tags, maps with texts for
// keys, lists, pointers, texts, numbers, booleans, time.Time, json.Unmarshaler, encoding.TextUnmarshaler for a scalar,
// and Node for a value that is read later. Empty lists and objects are read as missing ones, unless Options.KeepEmpty
// is set. field is the path of n.
func (r *Reader) Bind(n *Node, field string, target any) {
	if field != "" {
		r.push(field, -1)
		defer r.pop()
	}
	r.bind(n, reflect.ValueOf(target).Elem())
}

func (r *Reader) wrongType(n *Node, want, hint string) {
	if n.Kind == Null {
		hint = "leave the key out"
	}
	r.here(n.Position, CodeType, hint, "want %s, found %v", want, n)
}

func (r *Reader) bind(n *Node, target reflect.Value) {
	if n.Kind == Reported || n.Kind == Null && r.options.Nulls {
		return
	}
	switch target.Kind() { // the kinds that readers use
	case reflect.Pointer:
		element := reflect.New(target.Type().Elem())
		r.bind(n, element.Elem())
		if n.Kind != Null {
			target.Set(element)
		}
	case reflect.Struct:
		r.bindStruct(n, target)
	case reflect.Map:
		r.bindMap(n, target)
	case reflect.Slice:
		r.bindSlice(n, target)
	default:
		r.bindScalar(n, target)
	}
}

func (r *Reader) bindScalar(n *Node, target reflect.Value) {
	if words, ok := reflect.TypeAssert[encoding.TextUnmarshaler](target.Addr()); ok {
		r.bindText(n, words)
		return
	}
	switch target.Kind() { // the kinds that readers use
	case reflect.String:
		if n.Kind != Text && !(r.options.Words && n.Scalar()) {
			r.wrongType(n, "text", quoted(n))
			return
		}
		target.SetString(n.Written())
	case reflect.Bool:
		if n.Kind != Bool {
			r.wrongType(n, "true or false", "")
			return
		}
		target.SetBool(n.Text == "true")
	case reflect.Float32, reflect.Float64:
		if f, ok := r.float(n); ok {
			target.SetFloat(f)
		}
	default:
		r.bindInt(n, target)
	}
}

// bindText passes a scalar as it is written, so that the type can say what it wants of a number, too.
func (r *Reader) bindText(n *Node, target encoding.TextUnmarshaler) {
	if !n.Scalar() {
		r.wrongType(n, "text", "")
		return
	}
	if err := target.UnmarshalText([]byte(n.Written())); err != nil {
		r.here(n.Position, CodeType, "", "%v", err)
	}
}

// quoted is the hint for a number or boolean where text is wanted.
func quoted(n *Node) string {
	if n.Kind == Number || n.Kind == Bool {
		return "put it in quotes: " + strconv.Quote(clip(n.Written(), 80))
	}
	return ""
}

func (r *Reader) bindTime(n *Node, target *time.Time) {
	const hint = "write it as 2026-01-31T18:00:00Z"
	if n.Kind != Text {
		r.wrongType(n, "a time", hint)
		return
	}
	at, err := time.Parse(time.RFC3339, n.Text)
	if err != nil {
		r.here(n.Position, CodeType, hint, "want a time by RFC 3339, found %.80q", n.Text)
		return
	}
	*target = at.UTC()
}

// member is a field of a struct with its key.
type member struct {
	key   string
	value reflect.Value
}

// members lists the fields of a struct; those of an embedded one count as its own.
func members(target reflect.Value, list []member) []member {
	t := target.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && key == "":
			list = members(target.Field(i), list)
		case key != "" && key != "-":
			list = append(list, member{key, target.Field(i)})
		}
	}
	return list
}

func (r *Reader) bindStruct(n *Node, target reflect.Value) {
	switch at := target.Addr().Interface().(type) {
	case *time.Time:
		r.bindTime(n, at)
		return
	case *Node:
		*at = *n
		return
	case json.Unmarshaler:
		r.unmarshal(n, at)
		return
	}
	if n.Kind != Object {
		r.wrongType(n, "an object", "")
		return
	}
	var room [24]member
	known := members(target, room[:0])
	twice := duplicates(n.Entries, true)
	for i := range n.Entries {
		e := &n.Entries[i]
		r.push(e.Key, -1)
		switch m := r.find(known, e.Key); {
		case r.given(n, twice, i):
		case m != nil && m.key != e.Key && n.has(m.key):
			r.here(e.Position, CodeDuplicate, "keep "+m.key, "given twice: as %.80q and as %.80q", m.key, e.Key)
		case m != nil:
			r.bind(&e.Value, m.value)
		case !r.options.Tolerant:
			names := make([]string, len(known))
			for i := range known {
				names[i] = known[i].key
			}
			r.unknown(e, names)
		}
		r.pop()
	}
}

// find returns the field of a key, or nil.
func (r *Reader) find(known []member, key string) *member {
	names := []string{key, ""}
	if r.options.SecondNames != nil {
		names[1] = r.options.SecondNames(key)
	}
	for _, name := range names {
		if i := slices.IndexFunc(known, func(m member) bool { return m.key == name }); i >= 0 {
			return &known[i]
		}
	}
	for i := range known {
		if r.options.Tolerant && strings.EqualFold(known[i].key, key) {
			return &known[i]
		}
	}
	return nil
}

// has reports whether an object has a key.
func (n *Node) has(key string) bool {
	return slices.ContainsFunc(n.Entries, func(e Entry) bool { return e.Key == key })
}

// unknown reports a key that is not among names.
func (r *Reader) unknown(e *Entry, names []string) {
	hint := ""
	if r.options.OtherNames != nil {
		if other := r.options.OtherNames(strings.ToLower(clip(e.Key, 80))); slices.Contains(names, other) {
			hint = "did you mean " + other + "?"
		}
	}
	if hint == "" {
		hint = Near(e.Key, names)
	}
	r.here(e.Position, CodeUnknown, hint, "no such field")
}

// given reports the i-th entry of n if its key came before.
func (r *Reader) given(n *Node, twice map[int]int, i int) bool {
	first, again := twice[i]
	if !again {
		return false
	}
	e := &n.Entries[i]
	if before := n.Entries[first].Key; before != e.Key {
		r.here(e.Position, CodeDuplicate, "keep one of them", "given twice: as %.80q and as %.80q", before, e.Key)
	} else {
		r.here(e.Position, CodeDuplicate, "keep one of them", "given twice")
	}
	return true
}

// duplicates maps each entry with a repeated key to the first entry with that key; nil if no key repeats. With fold,
// keys that differ only in case are the same.
func duplicates(entries []Entry, fold bool) map[int]int {
	const few = 16
	same := func(a, b string) bool { return a == b || fold && len(a) == len(b) && strings.EqualFold(a, b) }
	var twice map[int]int
	note := func(i, first int) {
		if twice == nil {
			twice = map[int]int{}
		}
		twice[i] = first
	}
	if len(entries) <= few {
		for i := range entries {
			for first := range i {
				if same(entries[first].Key, entries[i].Key) {
					note(i, first)
					break
				}
			}
		}
		return twice
	}
	seen := make(map[string]int, len(entries))
	for i := range entries {
		key := entries[i].Key
		if fold {
			key = strings.ToLower(key)
		}
		if first, ok := seen[key]; ok {
			note(i, first)
			continue
		}
		seen[key] = i
	}
	return twice
}

// bindMap fills a map. Its keys are the user's own, such as names of variables: those that differ in case are two.
func (r *Reader) bindMap(n *Node, target reflect.Value) {
	if n.Kind != Object {
		r.wrongType(n, "an object", "")
		return
	}
	if len(n.Entries) == 0 && !r.options.KeepEmpty {
		return
	}
	target.Set(reflect.MakeMapWithSize(target.Type(), len(n.Entries)))
	twice := duplicates(n.Entries, false)
	element := reflect.New(target.Type().Elem()).Elem()
	for i := range n.Entries {
		e := &n.Entries[i]
		r.push(e.Key, -1)
		if !r.given(n, twice, i) && !(r.options.Nulls && e.Value.Kind == Null) {
			element.SetZero()
			r.bind(&e.Value, element)
			target.SetMapIndex(reflect.ValueOf(e.Key), element)
		}
		r.pop()
	}
}

// unmarshal passes the value to the target's json.Unmarshaler.
func (r *Reader) unmarshal(n *Node, target json.Unmarshaler) {
	if err := target.UnmarshalJSON(n.appendJSON(nil)); err != nil {
		r.here(n.Position, CodeType, "", "%v", err)
	}
}

func (r *Reader) bindSlice(n *Node, target reflect.Value) {
	if raw, ok := reflect.TypeAssert[*json.RawMessage](target.Addr()); ok {
		*raw = n.appendJSON(nil)
		return
	}
	if n.Kind != List {
		hint := ""
		if n.Kind == Text && target.Type().Elem().Kind() == reflect.String {
			hint = `write a list: ["python", "train.py"]`
		}
		r.wrongType(n, "a list", hint)
		return
	}
	if len(n.Items) == 0 && !r.options.KeepEmpty {
		return
	}
	list := reflect.MakeSlice(target.Type(), len(n.Items), len(n.Items))
	for i := range n.Items {
		r.push("", i)
		r.bind(&n.Items[i], list.Index(i))
		r.pop()
	}
	target.Set(list)
}

// float reads a finite number.
func (r *Reader) float(n *Node) (float64, bool) {
	if n.Kind != Number {
		r.wrongType(n, "a number", "")
		return 0, false
	}
	f, err := strconv.ParseFloat(n.Text, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		r.here(n.Position, CodeRange, "", "want a finite number, found %v", n)
		return 0, false
	}
	return f, true
}

// bindInt takes whole numbers, however they are written (8, 8.0, 8e3). Those of 64 bits stay exact.
func (r *Reader) bindInt(n *Node, target reflect.Value) {
	if n.Kind != Number {
		r.wrongType(n, "a whole number", "")
		return
	}
	if u, err := strconv.ParseUint(n.Text, 10, 64); err == nil && target.CanUint() && !target.OverflowUint(u) {
		target.SetUint(u)
		return
	}
	i, ok := r.whole(n)
	switch {
	case !ok:
	case target.CanInt() && !target.OverflowInt(i):
		target.SetInt(i)
	case target.CanUint() && i >= 0 && !target.OverflowUint(uint64(i)):
		target.SetUint(uint64(i))
	case target.CanUint() && i < 0:
		r.here(n.Position, CodeRange, "", "want 0 or more, found %v", n)
	default:
		r.here(n.Position, CodeRange, "", "want a smaller number, found %v", n)
	}
}

// whole reads a whole number, of at most 2^53 if it is written with a point or an exponent.
func (r *Reader) whole(n *Node) (int64, bool) {
	if i, err := strconv.ParseInt(n.Text, 10, 64); err == nil {
		return i, true
	}
	f, err := strconv.ParseFloat(n.Text, 64)
	const exact = 1 << 53
	switch {
	case err != nil || math.Abs(f) > exact || math.IsNaN(f):
		r.here(n.Position, CodeRange, "", "want a whole number of at most 2^53, found %v", n)
		return 0, false
	case f != math.Trunc(f):
		r.wrongType(n, "a whole number", "")
		return 0, false
	}
	return int64(f), true
}
