package event

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// DecodeSubmission reads the body of a submission strictly: one JSON object in UTF-8, at most MaxBodyBytes long and 32
// levels deep, without duplicate keys (keys that differ only in case are duplicates), unknown keys, nulls or numbers
// that do not fit. It reports every problem at once, and returns as much of the spec as it could read. What the values
// mean is not checked here.
func DecodeSubmission(data []byte) (train.Spec, []train.Reason) {
	r := submissionReader()
	root, ok := r.JSON(data)
	if !ok {
		return train.Spec{}, reasons(r)
	}
	return bindSubmission(r, root)
}

// DecodeJobFile reads a job file, in YAML or JSON, as strictly as DecodeSubmission reads a submission.
func DecodeJobFile(data []byte) (train.Spec, strict.Problems) {
	r := submissionReader()
	root := r.Document(data)
	if root == nil {
		return train.Spec{}, r.Problems()
	}
	return BindSpec(r, root, ""), r.Problems()
}

// BindSpec reads a job that is a part of a larger file.
func BindSpec(r *strict.Reader, n *strict.Node, field string) train.Spec {
	var spec train.Spec
	r.Bind(n, field, &spec)
	return spec
}

func submissionReader() *strict.Reader {
	return strict.New(strict.Options{MaxBytes: MaxBodyBytes, SecondNames: SecondNames, OtherNames: OtherNames})
}

func bindSubmission(r *strict.Reader, root *strict.Node) (train.Spec, []train.Reason) {
	var spec train.Spec
	if root.Kind != strict.Object {
		r.AddAt(strict.Position{}, "NotAnObject", "", "", "want one JSON object, found %v", root)
	} else {
		r.Bind(root, "", &spec)
	}
	return spec, reasons(r)
}

// reasons turns problems into reasons. A submission is mostly one line, so a field says more than a line; a line is
// given where there is no field.
func reasons(r *strict.Reader) []train.Reason {
	var list []train.Reason
	for _, p := range r.Problems() {
		reason := train.Reason{Code: p.Code, Field: p.Field, Message: p.Message, Hint: p.Hint}
		if p.Field == "" && p.Line > 0 {
			reason.Message = fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Message)
		}
		if p.Code == strict.CodeMalformed {
			reason.Hint = `the body is one JSON object, such as {"name": "mnist", ..}`
		}
		list = append(list, reason)
	}
	return list
}

// DecodeRequest reads the body of a fact of kind k that a person sends into what k.New makes, as strictly as
// DecodeSubmission. Only a submission must have a body.
func DecodeRequest(k Kind, data []byte) (any, []train.Reason) {
	body := k.New()
	if len(data) == 0 && k.Fact != FactSubmitted {
		return body, nil
	}
	r := submissionReader()
	if root, ok := r.JSON(data); ok {
		r.Bind(root, "", body)
	}
	return body, explained(reasons(r))
}

// explained says of keys that an edit cannot set why they are fixed, instead of that there is no such key.
func explained(list []train.Reason) []train.Reason {
	for i, r := range list {
		if key, isSet := strings.CutPrefix(r.Field, "set."); isSet && r.Code == strict.CodeUnknown {
			if fixed := train.Fixed(key); fixed != nil {
				list[i] = *fixed
			}
		}
	}
	return list
}

// DecodeBody reads the body of a fact of kind k between services into what k.New makes, ignoring unknown keys. Facts
// that people may publish by hand may have no body.
func DecodeBody(k Kind, data []byte) (any, error) {
	body := k.New()
	if err := checkSize(body, data); err != nil {
		return nil, fmt.Errorf("decode %s: %w", k.Subject(), err)
	}
	if len(data) == 0 && k.Asked() {
		return body, nil
	}
	if err := json.Unmarshal(data, body); err != nil {
		return nil, fmt.Errorf("decode %s: %w", k.Subject(), err)
	}
	return body, nil
}

// SecondNames returns the field of a job for the shorter name under which it is accepted, too, or "". The flags of
// `switchyard submit` are these keys and names, with - for _.
func SecondNames(key string) string {
	switch key {
	case "epochs":
		return "max_epochs"
	case "hours":
		return "estimated_hours"
	case "memory_mib":
		return "estimated_memory_mib"
	case "script":
		return "script_path"
	case "port":
		return "ports"
	}
	return ""
}

// OtherNames returns the field of a job for another submission tool's name of it, or "".
func OtherNames(key string) string {
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
	case "num_epochs":
		return "max_epochs"
	case "gpus", "num_gpus", "devices":
		return "max_devices"
	}
	return ""
}
