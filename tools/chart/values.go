package main

import (
	"fmt"
	"regexp"
	"strings"
)

// value is one place of the manifests that becomes a template.
type value struct {
	// kinds are those whose objects are searched; empty means all but config maps, whose texts are no manifests.
	kinds string
	// name, if set, is the one object.
	name string
	// find is what stands in the manifests, and template what replaces it.
	find, template string
}

// with is a template that adds a field to the mapping in which find stands, if the value is set. A line of the manifest
// stays as it is.
func with(field, path string) string {
	return "{{- with .Values." + path + " }}\n${1}" + field + ": {{ toJson . }}\n{{- end }}\n${0}"
}

// values lists every place that a value reaches. The defaults of values.yaml give the manifests again.
func values() []value {
	const workloads = "Deployment StatefulSet DaemonSet Job"
	all := []value{
		// The release's namespace is the one of the services, and begins the names of the others.
		{find: `(?m)^( *(?:- )?(?:name|namespace|policyName): )switchyard(-nodes|-jobs|-bus|-executor|-nodeagent|-web|-scheduler|-scheduler-volumes|-trainingjobs-edit|-trainingjobs-view)?$`, template: "${1}{{ .Release.Namespace }}${2}"},
		{kinds: workloads + " ConfigMap", find: `\.switchyard\.svc\b`, template: ".{{ .Release.Namespace }}.svc"},
		{kinds: "ValidatingAdmissionPolicy StatefulSet", find: `system:serviceaccount:switchyard(-nodes)?:`, template: "system:serviceaccount:{{ .Release.Namespace }}${1}:"},
		{kinds: "Deployment DaemonSet", find: `(?m)value: switchyard-jobs$`, template: "value: {{ .Release.Namespace }}-jobs"},

		{kinds: workloads, find: `(?m)(image|value): switchyard/(\w+)$`, template: `$1: {{ .Values.image.repository }}/$2:{{ .Values.image.tag | default .Chart.AppVersion }}`},
		{kinds: workloads, find: `imagePullPolicy: IfNotPresent`, template: "imagePullPolicy: {{ .Values.image.pullPolicy }}"},
		{kinds: workloads, find: `(?m)^( +)containers:$`, template: with("imagePullSecrets", "image.pullSecrets")},
		{kinds: workloads, find: `secretName: keys-`, template: "secretName: {{ .Values.secrets.keysPrefix }}"},
		{kinds: workloads, find: `(?m)(key: \w+\n +name: )(influxdb|grafana)$`, template: "${1}{{ .Values.secrets.${2} }}"},
		{kinds: "Deployment", find: `(?m)^  replicas: 2$`, template: "  replicas: {{ .Values.replicas }}"},
		{kinds: "ConfigMap", name: "services", find: `(?m)^( +)(SWITCHYARD_DATA_DIR: .*)$`, template: "${0}\n{{- range $$name, $$text := .Values.settings }}\n${1}{{ $$name }}: {{ $$text | toString | quote }}\n{{- end }}"},

		{kinds: "DaemonSet", name: "nodeagent", find: `/var/lib/kubelet\b`, template: "{{ .Values.nodeagent.kubeletDir }}"},
		{kinds: "DaemonSet", name: "nodeagent", find: `(?m)tolerations:\n +- operator: Exists$`, template: "tolerations: {{ toJson .Values.nodeagent.tolerations }}"},
		{kinds: "DaemonSet", name: "nodeagent", find: `(?m)^( +)hostPID:.*$`, template: with("nodeSelector", "nodeagent.nodeSelector")},
		{kinds: "DaemonSet", name: "nodeagent", find: `(?m)^( +)hostNetwork:.*$`, template: with("runtimeClassName", "nodeagent.runtimeClass")},

		// A Job cannot change: each upgrade makes its own.
		{kinds: "Job", name: "influx-setup", find: `(?m)^  name: influx-setup$`, template: "  name: influx-setup-{{ .Release.Revision }}"},
	}
	for object, container := range map[string]string{"influxdb": "influxdb", "grafana": "grafana"} {
		all = append(all, value{kinds: workloads, name: object, find: `(?m)image: ((?:\w+/)?` + container + `:\S+)$`, template: "image: {{ .Values." + object + ".image }}"})
	}
	for _, object := range []string{"bus", "influxdb"} {
		all = append(all,
			value{kinds: "StatefulSet", name: object, find: `(?m)storage: \d+Gi$`, template: "storage: {{ .Values." + object + ".storage }}"},
			value{kinds: "StatefulSet", name: object, find: `(?m)^( +)accessModes:$`, template: with("storageClassName", object+".storageClass")})
	}
	all = append(all,
		value{kinds: "PersistentVolumeClaim", name: "snapshots", find: `(?m)storage: \d+Gi$`, template: "storage: {{ .Values.snapshots.storage }}"},
		value{kinds: "PersistentVolumeClaim", name: "snapshots", find: `(?m)^( +)accessModes:$`, template: with("storageClassName", "snapshots.storageClass")})
	for _, object := range []string{"admission", "profiler", "planner", "executor", "energy", "experiments", "web", "nodeagent"} {
		all = append(all, value{kinds: "Deployment DaemonSet", name: object, find: `\benv:\n( +)- `, template: "env:\n{{- range .Values.env." + object + " }}\n${1}- {{ toJson . }}\n{{- end }}\n${1}- "})
	}
	return all
}

// of says whether the value is looked for in an object.
func (v value) of(o object) bool {
	if v.name != "" && v.name != o.name {
		return false
	}
	if v.kinds == "" {
		return o.kind != "ConfigMap"
	}
	return strings.Contains(" "+v.kinds+" ", " "+o.kind+" ")
}

// templates is the table of values, which knows what it has found.
type templates struct {
	values   []value
	patterns []*regexp.Regexp
	found    []bool
}

func newTemplates() *templates {
	t := &templates{values: values()}
	for _, v := range t.values {
		t.patterns = append(t.patterns, regexp.MustCompile(v.find))
	}
	t.found = make([]bool, len(t.values))
	return t
}

// apply makes a template of an object.
func (t *templates) apply(o object) object {
	// What looks like a template in the manifests, such as the legends of boards, is text.
	o.yaml = strings.ReplaceAll(o.yaml, "{{", "{{ `{{` }}")
	if o.kind == "ConfigMap" {
		o.yaml = strings.Replace(o.yaml, "\n  namespace: switchyard\n", "\n  namespace: {{ .Release.Namespace }}\n", 1)
	}
	for i, v := range t.values {
		if v.of(o) && t.patterns[i].MatchString(o.yaml) {
			t.found[i] = true
			o.yaml = t.patterns[i].ReplaceAllString(o.yaml, v.template)
		}
	}
	return o
}

// unfound returns an error if a value reaches nothing: its place in the manifests has changed.
func (t *templates) unfound() error {
	for i, v := range t.values {
		if !t.found[i] {
			return fmt.Errorf("no object %q of kind %q in %s has %s: correct the table of values", v.name, v.kinds, manifests, v.find)
		}
	}
	return nil
}
