package event

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Bounds of a submission beside MaxBodyBytes.
const (
	maxDepth = 32
	// maxReasons keeps the answer to a hostile body small.
	maxReasons = 50
)

// DecodeSubmission reads the body of a submission strictly: one JSON object in UTF-8, at most MaxBodyBytes long and 32 levels deep, without
// duplicate keys (keys that differ only in case are duplicates), unknown keys, nulls or numbers that do not fit. It gives every problem at
// once, and then as much of the spec as could be read. What the values mean is not checked here.
func DecodeSubmission(data []byte) (train.Spec, []train.Reason) {
	var spec train.Spec
	n := &notes{}
	switch {
	case len(data) > MaxBodyBytes:
		n.add(train.Reason{Code: "TooLarge", Message: fmt.Sprintf("the body has %d bytes, at most %d are read", len(data), MaxBodyBytes)})
		return spec, n.all()
	case !utf8.Valid(data):
		n.add(train.Reason{Code: "NotUTF8", Message: "the body is not UTF-8 text", Hint: "save the file as UTF-8"})
		return spec, n.all()
	}
	root, ok := readTree(data, n)
	if !ok {
		return spec, n.all()
	}
	if root.kind != kindObject {
		n.add(train.Reason{Code: "NotAnObject", Message: fmt.Sprintf("want one JSON object, found %v", root)})
		return spec, n.all()
	}
	n.bind("", root, reflect.ValueOf(&spec).Elem())
	return spec, n.all()
}

// DecodeBody reads the body of a fact of kind k between services into what k.New makes: unknown keys are ignored. What a person may publish by hand may
// have no body at all.
func DecodeBody(k Kind, data []byte) (any, error) {
	body := k.New()
	if err := checkSize(body, data); err != nil {
		return nil, fmt.Errorf("decode %s: %w", k.Subject(), err)
	}
	if len(data) == 0 && k.Publisher == "anyone" {
		return body, nil
	}
	if err := json.Unmarshal(data, body); err != nil {
		return nil, fmt.Errorf("decode %s: %w", k.Subject(), err)
	}
	return body, nil
}

// notes collects reasons up to a bound.
type notes struct {
	reasons []train.Reason
	more    int
}

func (n *notes) full() bool { return len(n.reasons) >= maxReasons }

func (n *notes) add(r train.Reason) {
	if n.full() {
		n.more++
		return
	}
	n.reasons = append(n.reasons, r)
}

func (n *notes) all() []train.Reason {
	if n.more > 0 {
		return append(n.reasons, train.Reason{Code: "TooManyProblems", Message: fmt.Sprintf("and %d more problems", n.more)})
	}
	return n.reasons
}

func (n *notes) wrongType(path, want string, found value, hint string) {
	if found.kind == kindNull {
		hint = "leave the key out"
	}
	n.add(train.Reason{Code: "WrongType", Field: path, Message: fmt.Sprintf("want %s, found %v", want, found), Hint: hint})
}

// bind stores v in target, whose type says what is wanted.
func (n *notes) bind(path string, v value, target reflect.Value) {
	if v.kind == kindReported {
		return
	}
	switch target.Kind() { // the kinds that train.Spec is made of
	case reflect.Pointer:
		if v.kind == kindNull {
			n.bind(path, v, reflect.New(target.Type().Elem()).Elem())
			return
		}
		target.Set(reflect.New(target.Type().Elem()))
		n.bind(path, v, target.Elem())
	case reflect.Struct:
		if at, isTime := reflect.TypeAssert[*time.Time](target.Addr()); isTime {
			n.bindTime(path, v, at)
			return
		}
		n.bindStruct(path, v, target)
	case reflect.Map:
		n.bindMap(path, v, target)
	case reflect.Slice:
		n.bindSlice(path, v, target)
	case reflect.String:
		if v.kind != kindText {
			n.wrongType(path, "text", v, quoted(v))
			return
		}
		target.SetString(v.text)
	case reflect.Bool:
		if v.kind != kindBool {
			n.wrongType(path, "true or false", v, "")
			return
		}
		target.SetBool(v.text == "true")
	case reflect.Float64:
		n.bindFloat(path, v, target)
	default:
		n.bindInt(path, v, target)
	}
}

// bindTime reads a moment.
func (n *notes) bindTime(path string, v value, target *time.Time) {
	const hint = "write it as 2026-01-31T18:00:00Z"
	if v.kind != kindText {
		n.wrongType(path, "a time", v, hint)
		return
	}
	at, err := time.Parse(time.RFC3339, v.text)
	if err != nil {
		n.add(train.Reason{Code: "WrongType", Field: path, Message: fmt.Sprintf("want a time by RFC 3339, found %.80q", v.text), Hint: hint})
		return
	}
	*target = at.UTC()
}

// quoted is the hint for a number or boolean where text is wanted.
func quoted(v value) string {
	if v.kind == kindNumber || v.kind == kindBool {
		return fmt.Sprintf("put it in quotes: %.80q", v.text)
	}
	return ""
}

func (n *notes) bindStruct(path string, v value, target reflect.Value) {
	if v.kind != kindObject {
		n.wrongType(path, "an object", v, "")
		return
	}
	known, names := map[string]int{}, []string{}
	for i := range target.NumField() {
		name, _, _ := strings.Cut(target.Type().Field(i).Tag.Get("json"), ",")
		known[name] = i
		names = append(names, name)
	}
	seen := map[string]string{}
	for _, f := range v.fields {
		where := joinPath(path, f.key)
		folded := strings.ToLower(f.key)
		if first, twice := seen[folded]; twice {
			n.add(duplicate(where, first, f.key))
			continue
		}
		seen[folded] = f.key
		i, ok := known[f.key]
		if !ok {
			n.add(train.Reason{Code: "UnknownField", Field: where, Message: "no such field", Hint: suggest(f.key, names)})
			continue
		}
		n.bind(where, f.value, target.Field(i))
	}
}

func duplicate(where, first, second string) train.Reason {
	message := "given twice"
	if first != second {
		message = fmt.Sprintf("given twice: as %.80q and as %.80q", first, second)
	}
	return train.Reason{Code: "DuplicateField", Field: where, Message: message, Hint: "keep one of them"}
}

// bindMap fills a map of texts. Its keys are the user's own (environment variables): those that differ in case are two.
func (n *notes) bindMap(path string, v value, target reflect.Value) {
	if v.kind != kindObject {
		n.wrongType(path, "an object", v, "")
		return
	}
	if len(v.fields) == 0 {
		return // the same as left out
	}
	target.Set(reflect.MakeMap(target.Type()))
	seen := map[string]bool{}
	for _, f := range v.fields {
		where := joinPath(path, f.key)
		if seen[f.key] {
			n.add(duplicate(where, f.key, f.key))
			continue
		}
		seen[f.key] = true
		element := reflect.New(target.Type().Elem()).Elem()
		n.bind(where, f.value, element)
		target.SetMapIndex(reflect.ValueOf(f.key), element)
	}
}

func (n *notes) bindSlice(path string, v value, target reflect.Value) {
	if v.kind != kindList {
		hint := ""
		if v.kind == kindText && target.Type().Elem().Kind() == reflect.String {
			hint = `write a list: ["python", "train.py"]`
		}
		n.wrongType(path, "a list", v, hint)
		return
	}
	if len(v.items) == 0 {
		return // the same as left out
	}
	list := reflect.MakeSlice(target.Type(), len(v.items), len(v.items))
	for i, item := range v.items {
		n.bind(fmt.Sprintf("%s[%d]", path, i), item, list.Index(i))
	}
	target.Set(list)
}

func (n *notes) bindFloat(path string, v value, target reflect.Value) {
	if v.kind != kindNumber {
		n.wrongType(path, "a number", v, "")
		return
	}
	f, err := strconv.ParseFloat(v.text, 64)
	if err != nil {
		n.add(train.Reason{Code: "OutOfRange", Field: path, Message: fmt.Sprintf("want a finite number, found %v", v)})
		return
	}
	target.SetFloat(f)
}

// bindInt takes whole numbers, however they are written (8, 8.0, 8e3).
func (n *notes) bindInt(path string, v value, target reflect.Value) {
	if v.kind != kindNumber {
		n.wrongType(path, "a whole number", v, "")
		return
	}
	i, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil {
		f, floatErr := strconv.ParseFloat(v.text, 64)
		const exact = 1 << 53
		switch {
		case floatErr != nil || math.Abs(f) > exact:
			n.add(train.Reason{Code: "OutOfRange", Field: path, Message: fmt.Sprintf("want a whole number of at most 2^53, found %v", v)})
			return
		case f != math.Trunc(f):
			n.wrongType(path, "a whole number", v, "")
			return
		}
		i = int64(f)
	}
	target.SetInt(i)
}

// suggest gives the field that an unknown key was probably meant to be.
func suggest(key string, names []string) string {
	const longest = 64
	if len(key) > longest {
		return "" // no misspelling, and dear to compare
	}
	lower := strings.ToLower(key)
	near := otherNames(lower)
	if !slices.Contains(names, near) {
		near = train.NearMiss(lower, names)
	}
	if near == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %s?", near)
}

// otherNames maps what other submission tools call a field to the name here.
func otherNames(key string) string {
	switch key {
	case "job_name", "jobname":
		return "name"
	case "image_name", "docker_image", "dockerimage":
		return "image"
	case "is_single_gpu", "issinglegpu", "single_gpu":
		return "single_device"
	case "disable_gpu_sharing", "disablegpusharing":
		return "disable_sharing"
	case "est_nhours", "nhours":
		return "estimated_hours"
	case "port_mapping", "port_mappings":
		return "ports"
	case "directorytomount":
		return "custom_dir"
	case "epochs", "num_epochs":
		return "max_epochs"
	case "gpus", "num_gpus", "devices":
		return "max_devices"
	}
	return ""
}
