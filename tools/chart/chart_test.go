package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	helm "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const (
	root    = "../.."
	version = "1.2.3"
)

// generated returns the chart, and what Helm loads of its archive.
func generated(t *testing.T) (Chart, *helm.Chart) {
	t.Helper()
	c, err := Generate(root, version)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := c.pack()
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := loader.LoadArchive(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	return c, loaded
}

// rendered returns the objects that Helm makes of a chart, by kind, namespace and name.
func rendered(t *testing.T, c *helm.Chart, namespace string, values map[string]any) map[string]any {
	t.Helper()
	release := chartutil.ReleaseOptions{Name: "any", Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]any{}
	for path, text := range texts {
		if filepath.Ext(path) == ".yaml" && strings.TrimSpace(text) != "" {
			add(t, objects, text)
		}
	}
	for _, crd := range c.CRDObjects() {
		add(t, objects, string(crd.File.Data))
	}
	return objects
}

func add(t *testing.T, objects map[string]any, text string) {
	t.Helper()
	var o struct {
		Kind     string
		Metadata struct{ Name, Namespace string }
	}
	var whole any
	for _, into := range []any{&o, &whole} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	objects[object{kind: o.Kind, namespace: o.Metadata.Namespace, name: o.Metadata.Name}.key()] = whole
}

// The chart with any toggles is what kustomize builds with the same components.
func TestTheChartIsTheManifests(t *testing.T) {
	_, c := generated(t)
	images := regexp.MustCompile(`(?m)(image|value): switchyard/\w+$`)
	for bits := range 1 << len(toggles()) {
		var with []string
		values := map[string]any{}
		for i, toggle := range toggles() {
			if bits&(1<<i) != 0 {
				with, values[toggle] = append(with, toggle), true
			}
		}
		t.Run(strings.Join(append([]string{"base"}, with...), " "), func(t *testing.T) {
			built, err := build(root, with...)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]any{}
			for _, o := range built {
				if o.kind == "Namespace" && o.name == Name {
					continue // helm install --create-namespace makes it
				}
				text := images.ReplaceAllString(o.yaml, "$0:"+version)
				if o.kind == "Job" {
					text = strings.Replace(text, "name: "+o.name, "name: "+o.name+"-1", 1)
				}
				add(t, want, text)
			}
			if diff := cmp.Diff(want, rendered(t, c, "switchyard", values)); diff != "" {
				t.Errorf("the chart differs from the manifests (-manifests +chart):\n%s", diff)
			}
		})
	}
}

// What Helm's own check finds wrong, or would rather have, of the chart with everything on.
func TestHelmLints(t *testing.T) {
	c, _ := generated(t)
	out := t.TempDir()
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{false, true} {
		values := map[string]any{}
		for _, toggle := range toggles() {
			values[toggle] = on
		}
		found := lint.AllWithKubeVersion(filepath.Join(out, Name), values, "switchyard", nil)
		for _, message := range found.Messages {
			if message.Severity > support.InfoSev {
				t.Error(message)
			}
		}
	}
}

// known finds fields that Kubernetes does not have where a value put them.
func known(t *testing.T, key string, o any) {
	t.Helper()
	text, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	if _, _, err := strict.Decode(text, nil, nil); err != nil && !runtime.IsNotRegisteredError(err) {
		t.Errorf("%s: %v", key, err)
	}
}

// Every value reaches an object, and no object keeps the name of another installation.
func TestEveryValueIsUsed(t *testing.T) {
	_, c := generated(t)
	values := map[string]any{
		"monitoring": true, "replicated": true, "probing": true, "dra": true, "plainpods": true, "replicas": 3,
		"image":     map[string]any{"repository": "r.example/yard", "tag": "t1", "pullPolicy": "Always", "pullSecrets": []any{map[string]any{"name": "pull-me"}}},
		"settings":  map[string]any{"SWITCHYARD_POD_IMAGE": "train:1", "SWITCHYARD_TRACE": true},
		"secrets":   map[string]any{"keysPrefix": "k-", "influxdb": "series-secret", "grafana": "boards-secret"},
		"bus":       map[string]any{"storage": "45Gi", "storageClass": "fast"},
		"influxdb":  map[string]any{"image": "influxdb:test", "storage": "51Gi", "storageClass": "slow"},
		"grafana":   map[string]any{"image": "grafana:test"},
		"snapshots": map[string]any{"storage": "61Gi", "storageClass": "shared"},
		"nodeagent": map[string]any{"nodeSelector": map[string]any{"gpu": "yes"}, "tolerations": []any{}, "runtimeClass": "nvidia", "kubeletDir": "/k"},
		"env":       map[string]any{"energy": []any{map[string]any{"name": "MORE", "value": "12"}}},
	}
	objects := rendered(t, c, "yard", values)
	for key, o := range objects {
		known(t, key, o)
	}
	text, err := yaml.Marshal(objects)
	if err != nil {
		t.Fatal(err)
	}
	all := string(text)
	for _, want := range []string{
		"image: r.example/yard/planner:t1", "value: r.example/yard/executor:t1", "imagePullPolicy: Always", "- name: pull-me", "replicas: 3", "SWITCHYARD_POD_IMAGE: train:1", `SWITCHYARD_TRACE: "true"`,
		"secretName: k-web", "name: series-secret", "name: boards-secret", "storage: 45Gi", "storageClassName: fast", "image: influxdb:test",
		"storage: 51Gi", "storageClassName: slow", "image: grafana:test", "storage: 61Gi", "storageClassName: shared", "system:serviceaccount:yard:executor", "--agent=system:serviceaccount:yard-nodes:nodeagent", "https://bus.yard.svc:4223", "name: yard-bus", "policyName: yard-jobs", `gpu: "yes"`, "tolerations: []", "runtimeClassName: nvidia", "path: /k/plugins_registry",
		"mountPath: /k/plugins_registry", "value: /k", "name: MORE\n", "namespace: yard-nodes", "namespace: yard-jobs", "value: yard-jobs", "name: yard-executor",
		"nats://bus.yard.svc:4222", "bus-0.bus.yard.svc:6222", "http://influxdb.yard.svc:8086",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no object has %q", want)
		}
	}
	for _, old := range []string{"switchyard.svc", "namespace: switchyard", "name: switchyard-", "- switchyard\n", "switchyard-jobs"} {
		if at := strings.Index(all, old); at >= 0 {
			t.Errorf("an installation in the namespace yard names %q:\n%s", old, all[max(0, at-200):at+100])
		}
	}
}

// A value that the chart does not know, or cannot take, is refused.
func TestWrongValuesAreRefused(t *testing.T) {
	_, c := generated(t)
	for want, values := range map[string]map[string]any{
		"monitorin":  {"monitorin": true},
		"replicated": {"replicated": "yes"},
		"storage":    {"bus": map[string]any{"storage": "much"}},
		"pod_image":  {"settings": map[string]any{"pod_image": "x"}},
	} {
		_, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{}, chartutil.DefaultCapabilities)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one about %s", values, err, want)
		}
	}
}

func TestComponentsThatMeetAreAnError(t *testing.T) {
	base := object{kind: "Service", name: "a", yaml: "a: 1\nb: 2\n"}
	_, err := merge(base, map[string]object{"monitoring": {yaml: "a: 2\nb: 2\n"}, "replicated": {yaml: "a: 3\nb: 2\n"}})
	if err == nil || !strings.Contains(err.Error(), "replicated") {
		t.Errorf("two components change one line: error %v", err)
	}
}

func TestTheSameManifestsMakeTheSameArchive(t *testing.T) {
	var packed [2][]byte
	for i := range packed {
		c, _ := generated(t)
		var err error
		if packed[i], err = c.pack(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(packed[0], packed[1]) {
		t.Error("two archives of the same chart differ")
	}
}
