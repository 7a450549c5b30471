package extender

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// question is a question as a scheduler of Kubernetes sends it; containers are in JSON.
func question(containers, nodes string) string {
	return `{"Pod": {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": [` + containers + `]}}, "Nodes": null, "NodeNames": ` + nodes + `}`
}

const asks = `{"name": "a", "image": "i", "command": ["python"], "args": ["t.py"], "resources": {"limits": {"gpushare/gpu-mem": "4"}, "requests": {"gpushare/gpu-mem": "4"}}}`

func TestAQuestionOfAScheduler(t *testing.T) {
	var asked rpc.PodRequest
	answer, fault := rpc.PodAnswer{}, error(nil)
	handler := Handler("word", func(_ context.Context, r rpc.PodRequest) (rpc.PodAnswer, error) {
		asked = r
		return answer, fault
	})
	post := func(path, body string) (int, string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	sidecar := `{"name": "side", "image": "s"}`
	for _, c := range []struct {
		name, body, want string
		answer           rpc.PodAnswer
		fault            error
	}{
		{"placed", question(sidecar+","+asks, `["n.1", "n2"]`), `{"NodeNames":["n.1"]}`, rpc.PodAnswer{Node: train.KubernetesNodeID("n.1"), Device: "gpu:0"}, nil},
		{"waits", question(asks, `["n2"]`), `{"Error":"Switchyard: the pod waits: no room"}`, rpc.PodAnswer{Reason: train.Reason{Message: "no room"}}, nil},
		{"the planner is away", question(asks, `["n2"]`), `{"Error":"Switchyard: away"}`, rpc.PodAnswer{}, errors.New("away")},
		{"booked elsewhere", question(asks, `["n2"]`), `{"Error":"Switchyard: memory is booked on node n3, where the scheduler would not start the pod"}`, rpc.PodAnswer{Node: "n3"}, nil},
		{"two containers", question(asks+","+asks, `["n2"]`), `{"NodeNames":[],"FailedAndUnresolvableNodes":{"n2":"several containers ask for gpushare/gpu-mem: one of a pod may"}}`, rpc.PodAnswer{}, nil},
		{"whole nodes", `{"Pod": {"metadata": {"uid": "u"}, "spec": {"containers": [` + asks + `]}}, "Nodes": {"items": [{"metadata": {"name": "n1"}}, {"metadata": {"name": "n2"}}]}}`, `"name":"n2"`, rpc.PodAnswer{Node: "n2"}, nil},
	} {
		answer, fault = c.answer, c.fault
		if code, got := post("/word/filter", c.body); code != http.StatusOK || !strings.Contains(got, c.want) || c.name == "whole nodes" && strings.Contains(got, "n1") {
			t.Errorf("%s: %d %s, want %s", c.name, code, got, c.want)
		}
		if p := asked.Pod; c.name == "placed" && (p.Memory != 4*unit.GiB || p.Image != "i" || strings.Join(p.Command, " ") != "python t.py" || p.FullName() != "ns/p" || asked.Nodes[0] != train.KubernetesNodeID("n.1")) {
			t.Errorf("%s: asked %+v", c.name, asked)
		}
	}
	for _, path := range []string{"/filter", "/other/filter", "/word/bind", "//filter"} {
		if code, _ := post(path, question(asks, `["n2"]`)); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
	if code, _ := post("/word/filter", "{"); code != http.StatusBadRequest {
		t.Errorf("half a question: %d", code)
	}
}

// FuzzQuestion: whatever is sent as a question, the planner is asked only about a pod that asks for memory, and the
// answer names no node but one of the question.
func FuzzQuestion(f *testing.F) {
	f.Add([]byte(question(asks, `["n1", "n2"]`)))
	f.Add([]byte(`{"Pod": {"spec": {"containers": [{"resources": {"limits": {"gpushare/gpu-mem": "1e30"}}}, {}]}}, "Nodes": {"items": [{}]}, "NodeNames": null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		handler := Handler("word", func(_ context.Context, r rpc.PodRequest) (rpc.PodAnswer, error) {
			if r.Pod.Memory <= 0 {
				t.Errorf("asked for %d bytes", r.Pod.Memory)
			}
			return rpc.PodAnswer{Node: train.KubernetesNodeID("n1")}, nil
		})
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/word/filter", bytes.NewReader(body)))
		var result Result
		if w.Code != http.StatusOK {
			return
		}
		if err := json.Unmarshal(w.Body.Bytes(), &result); err != nil {
			t.Fatal(err)
		}
		for _, name := range (Args{Nodes: result.Nodes, NodeNames: result.NodeNames}).names() {
			if train.KubernetesNodeID(name) != train.KubernetesNodeID("n1") {
				t.Errorf("answered %q", name)
			}
		}
	})
}
