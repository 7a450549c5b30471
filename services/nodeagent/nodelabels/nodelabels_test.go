package nodelabels

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "labels")
	for text, want := range map[string]map[string]string{
		"": {}, "gpushare=\"true\"\n\na/b=\"x \\\"y\\\"\"\nempty=\"\"\n": {"gpushare": "true", "a/b": `x "y"`, "empty": ""},
		"gpushare=true\n": nil, "=\"x\"": nil, "word": nil,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := File(path)(t.Context())
		if diff := cmp.Diff(want, got); diff != "" || (err != nil) != (want == nil) {
			t.Errorf("%q: error %v, (-want +got)\n%s", text, err, diff)
		}
	}
	if _, err := File(path + "x")(t.Context()); err == nil {
		t.Error("a file that is not there went unsaid")
	}
}

func TestCluster(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path != "/api/v1/nodes/gpu-7.example" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(`{"kind":"Node","metadata":{"name":"gpu-7.example","labels":{"gpushare":"true"}}}`))
	}))
	defer server.Close()
	account := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(account, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := cluster{node: "gpu-7.example", address: strings.TrimPrefix(server.URL, "https://"), account: account}
	if _, err := c.labels(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a service account: error %v", err)
	}
	put("token", "secret\n")
	put("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	got, err := c.labels(t.Context())
	if diff := cmp.Diff(map[string]string{"gpushare": "true"}, got); diff != "" || err != nil {
		t.Errorf("error %v, (-want +got)\n%s", err, diff)
	}
	other := c
	other.node = "unknown"
	if _, err := other.labels(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("error %v of a node that is not there", err)
	}
	put("token", "old")
	if _, err := c.labels(t.Context()); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("error %v of a wrong token", err)
	}
	c.address = ""
	if _, err := c.labels(t.Context()); !errors.Is(err, ErrOutside) {
		t.Errorf("error %v outside of a cluster", err)
	}
}

func TestCacheKeepsWhatItLastRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "labels")
	var changes []error
	c := Cache{Source: File(path), OnChange: func(err error) { changes = append(changes, err) }}
	now := time.Unix(1000, 0)
	for i, step := range []struct {
		file    string
		at      time.Duration
		want    map[string]string
		changes int
	}{
		{"", 0, nil, 1},
		{"a=\"1\"", Every - 1, nil, 1},
		{"a=\"1\"", Every, map[string]string{"a": "1"}, 2},
		{"", 2 * Every, map[string]string{"a": "1"}, 3},
		{"", 3 * Every, map[string]string{"a": "1"}, 3},
		{"a=\"2\"", 4 * Every, map[string]string{"a": "2"}, 4},
	} {
		_ = os.Remove(path)
		if step.file != "" {
			if err := os.WriteFile(path, []byte(step.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := c.Labels(t.Context(), now.Add(step.at))
		if diff := cmp.Diff(step.want, got); diff != "" || len(changes) != step.changes {
			t.Errorf("step %d: changes %v, (-want +got)\n%s", i, changes, diff)
		}
	}
}
