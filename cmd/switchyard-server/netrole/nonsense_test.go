package netrole

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// These roles do not authenticate their callers. They refuse servers that the configuration does not have, and bodies
// that are wrong or too large.
func TestNonsenseIsRefused(t *testing.T) {
	c := fourServers(t.TempDir())
	doors := map[string]http.Handler{"/paths": begin(t, c).handler(), "/counts": newDiagnoser(c, slog.New(slog.DiscardHandler)).handler()}
	for path, door := range doors {
		for what, sent := range map[string]struct {
			method string
			body   io.Reader
			status int
		}{
			"a server of the configuration": {http.MethodPost, strings.NewReader(`{"node": "10-0-0-1"}`), http.StatusOK},
			"a stranger":                    {http.MethodPost, strings.NewReader(`{"node": "stranger"}`), http.StatusNotFound},
			"no name":                       {http.MethodPost, strings.NewReader(`{}`), http.StatusNotFound},
			"no JSON":                       {http.MethodPost, strings.NewReader(`node`), http.StatusBadRequest},
			"another type":                  {http.MethodPost, strings.NewReader(`{"node": 5}`), http.StatusBadRequest},
			"too much":                      {http.MethodPost, strings.NewReader(`{"node": "` + strings.Repeat("x", mostBody)), http.StatusBadRequest},
			"another method":                {http.MethodGet, http.NoBody, http.StatusMethodNotAllowed},
		} {
			w := httptest.NewRecorder()
			door.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), sent.method, path, sent.body))
			if w.Code != sent.status {
				t.Errorf("%s to %s: %d %s, want %d", what, path, w.Code, w.Body, sent.status)
			}
		}
	}
}
