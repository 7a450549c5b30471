package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

// served returns the installation of a server whose router is that of the service web.
func served(t *testing.T, handler http.Handler) onSocket {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	return newOnServer(server.URL, file)
}

// A job can have the id standing, which is also the end of a path: an empty name must not mean it.
func TestANameThatNoPathCanHaveIsNoJob(t *testing.T) {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the server is asked for %s", r.URL)
		_, _ = w.Write([]byte(`{}`))
	}
	mux.HandleFunc("GET "+api.Prefix+"/jobs/{id}", answer)
	mux.HandleFunc("GET "+api.Prefix+"/jobs/{id}/standing", answer)
	mux.HandleFunc("GET "+api.Prefix+"/jobs", answer)
	mux.HandleFunc("GET "+api.Prefix, answer)
	mux.HandleFunc("GET "+api.Prefix+"/experiments/{id}", answer)
	y := served(t, mux)
	for _, name := range []string{"", ".", ".."} {
		_, record := y.Find(t.Context(), name, exit.UnknownJob)
		_, detail := y.Job(t.Context(), name, exit.UnknownJob)
		_, experiment := y.Experiment(t.Context(), name, exit.UnknownJob)
		for _, err := range []error{record, detail, experiment} {
			if exit.Code(err) != exit.UnknownJob || !strings.Contains(err.Error(), fmt.Sprintf("no job %q", name)) && !strings.Contains(err.Error(), fmt.Sprintf("no experiment %q", name)) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

func TestTheClientFollowsNobodyElsewhere(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.Prefix+"/jobs/{id}", func(http.ResponseWriter, *http.Request) { t.Error("the client asks about another job") })
	y := served(t, mux)
	var answer map[string]any
	if _, err := y.ask(t.Context(), api.Prefix+"/jobs//standing", nil, exit.Failed, &answer); err == nil || errors.Is(err, errGone) || !strings.Contains(err.Error(), "Redirect") {
		t.Errorf("a redirection: %v", err)
	}
}

// A server elsewhere is shown the token of the file, the newest one, and never in the clear.
func TestTokensAreShownToServers(t *testing.T) {
	var shown []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.Host+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(`{"bus": "nats://bus"}`))
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	var about api.About
	ask := func(address, file string) error {
		_, err := newOnServer(address, file).ask(t.Context(), api.Prefix, nil, exit.Unreachable, &about)
		return err
	}
	for _, token := range []string{"first", "second\n"} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := ask(server.URL, file); err != nil || about.Bus != "nats://bus" {
			t.Fatalf("%+v, %v", about, err)
		}
	}
	host := strings.TrimPrefix(server.URL, "http://")
	want := host + " " + api.Prefix + " Bearer first\n" + host + " " + api.Prefix + " Bearer second"
	if got := strings.Join(shown, "\n"); got != want {
		t.Errorf("the server was asked %s, want %s", got, want)
	}
	for address, sentence := range map[string]string{
		"http://switchyard.example": "in the clear", "ftp://switchyard.example": "want the path of a socket", "https://": "want the path of a socket", "https://switchyard.example": "must name a file",
	} {
		if err := ask(address, ""); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%s: %v, want %q", address, err, sentence)
		}
	}
	if err := ask(server.URL, file+"-gone"); err == nil || !strings.Contains(err.Error(), "read SWITCHYARD_TOKEN_FILE") {
		t.Errorf("without its file: %v", err)
	}
}
