package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// monitored runs Prometheus, which scrapes the system each second by the rules of deploy/prometheus, and returns its
// address.
func (c *cluster) monitored(program string) string {
	c.t.Helper()
	rules, err := filepath.Abs("../../deploy/prometheus")
	if err != nil {
		c.t.Fatal(err)
	}
	config := filepath.Join(c.dir, "prometheus.yml")
	text := fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%[1]s/alerts.yaml, %[1]s/records.yaml]
scrape_configs: [{job_name: switchyard, static_configs: [{targets: ["127.0.0.1:%[2]d"]}]}]
`, rules, c.http["up"])
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", bustest.FreePort(c.t))
	c.run("prometheus", program, []string{"--config.file", config, "--storage.tsdb.path", filepath.Join(c.dir, "tsdb"), "--web.listen-address", address}, nil)
	c.eventually("Prometheus has scraped once", func() error {
		_, err := c.ask("http://"+address, "up == 1")
		return err
	})
	return "http://" + address
}

// answer is Prometheus's answer to a query.
type answer struct {
	Data struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			Value  []any             `json:"value"`
		} `json:"result"`
	} `json:"data"`
}

// promBoard is the used part of a dashboard's file.
type promBoard struct {
	Title  string `json:"title"`
	Panels []struct {
		Title   string `json:"title"`
		Targets []struct {
			Expr       string                `json:"expr"`
			Datasource struct{ Type string } `json:"datasource"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query string `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

// TestEveryPanelIsAnsweredByPrometheus runs the queries of the dashboards on Prometheus as Grafana would.
func TestEveryPanelIsAnsweredByPrometheus(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("no prometheus (Debian: apt-get install prometheus)")
	}
	t.Parallel()
	c := scraped(t)
	server := c.monitored(program)
	c.busy()
	fill := strings.NewReplacer(
		"${tenant:regex}", ".*", "${user:regex}", ".*", "${project:regex}", ".*", "${job:regex}", "runs",
		"$__rate_interval", "10s", "$__range_s", "30", "$__range", "30s",
	)
	// What simulated GPUs do not have, and a system at work does not do.
	absent := map[string]string{"Utilisation of GPUs": "no driver", "Temperature of GPUs": "no driver"}
	for _, b := range promBoards(t) {
		for _, v := range b.Templating.List {
			if inside, is := strings.CutPrefix(v.Query, "label_values("); is {
				metric, label, _ := cutLast(strings.TrimSuffix(inside, ")"), ", ")
				c.answered(server, b.Title+": choices of "+v.Name, fmt.Sprintf("count by (%s) (%s)", label, fill.Replace(metric)))
			}
		}
		for _, p := range b.Panels {
			for _, target := range p.Targets {
				if absent[p.Title] == "" {
					c.answered(server, b.Title+": "+p.Title, fill.Replace(target.Expr))
				}
			}
		}
	}
	// The joules of Prometheus are those of the ledger.
	c.eventually("the job that has ended is accounted for", func() error {
		found, err := c.ask(server, `sum(switchyard_job_energy_joules_total{job_id="ends"})`)
		if err != nil {
			return err
		}
		var a train.Account
		if err := json.Unmarshal(c.bucket("ledger")["job.ends"], &a); err != nil {
			return err
		}
		// Prometheus adds up the components in floating point.
		got, err := strconv.ParseFloat(fmt.Sprint(found.Data.Result[0].Value[1]), 64)
		if err != nil {
			return err
		}
		if !a.Final || math.Abs(got-a.Energy.Joules()) > 1e-6 {
			return fmt.Errorf("%v J, the ledger has %v J, final: %t", got, a.Energy.Joules(), a.Final)
		}
		return nil
	})
}

func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

// ask asks Prometheus for the present value of a query. It fails if there is none.
func (c *cluster) ask(server, query string) (found answer, err error) {
	body, err := c.fetch(server + "/api/v1/query?" + url.Values{"query": {query}}.Encode())
	if err == nil {
		err = json.Unmarshal([]byte(body), &found)
	}
	if err == nil && len(found.Data.Result) == 0 {
		err = errors.New("no row")
	}
	return found, err
}

// answered waits until a query has rows, none of which is infinite or no number.
func (c *cluster) answered(server, what, query string) {
	c.t.Helper()
	c.eventually(what+"\n"+query, func() error {
		found, err := c.ask(server, query)
		for _, r := range found.Data.Result {
			if v := fmt.Sprint(r.Value[1]); v == "NaN" || strings.HasSuffix(v, "Inf") {
				return fmt.Errorf("value %s of %v", v, r.Metric)
			}
		}
		return err
	})
}

func promBoards(t *testing.T) []promBoard {
	t.Helper()
	paths, err := filepath.Glob("../../deploy/grafana/dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []promBoard
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var b promBoard
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if b.Templating.List[0].Query == "prometheus" {
			all = append(all, b)
		}
	}
	if len(all) != 3 {
		t.Fatalf("%d dashboards on Prometheus, want 3", len(all))
	}
	return all
}
