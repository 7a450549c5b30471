package system

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// metric is what the Prometheus of an operator sees of a fault: a gauge that becomes positive in a part, or a counter
// that rises in one that goes on.
type metric struct {
	name   string
	counts bool
}

// watcher waits until a metric shows a fault. Without a metric there is nothing to show.
type watcher struct {
	*storm
	metric
	before map[string]float64
	seen   bool
}

func (s *storm) watch(m metric) *watcher {
	return &watcher{s, m, s.values(m.name), m.name == ""}
}

func (w *watcher) look() {
	if w.seen {
		return
	}
	for part, value := range w.values(w.name) {
		before, known := w.before[part]
		w.seen = w.seen || !w.counts && value > 0 || w.counts && known && value > before
	}
}

// hold looks for a time.
func (w *watcher) hold(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && w.ctx.Err() == nil; w.pause(min(500*time.Millisecond, time.Until(end))) {
		w.look()
	}
}

// shown waits for ten seconds at most until the metric has shown the fault.
func (w *watcher) shown() bool {
	for began := time.Now(); !w.seen && time.Since(began) < 10*time.Second && w.ctx.Err() == nil; w.pause(200 * time.Millisecond) {
		w.look()
	}
	return w.seen
}

// values returns the sum of a metric in each part that answers.
func (s *storm) values(name string) map[string]float64 {
	sums := map[string]float64{}
	if name == "" {
		return sums
	}
	client := http.Client{Timeout: 2 * time.Second}
	for part, port := range s.http {
		r, err := client.Get("http://127.0.0.1:" + strconv.Itoa(port) + "/metrics") //nolint:noctx // it has a timeout
		if err != nil {
			continue
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		for line := range strings.Lines(string(body)) {
			if value, is := strings.CutPrefix(line, name); is && (value[0] == '{' || value[0] == ' ') {
				number, err := strconv.ParseFloat(value[strings.LastIndex(value, " ")+1:len(value)-1], 64)
				if err == nil {
					sums[part] += number
				}
			}
		}
	}
	return sums
}
