package console

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

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
