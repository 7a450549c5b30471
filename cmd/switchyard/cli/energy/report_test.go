package energy

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/grid"
	"github.com/switchyard-dl/switchyard/services/energy/report"
)

// exampleSite is the tariff that the repository gives as an example.
const exampleSite = "../../../../deploy/grafana/site.yaml"

// spend puts an hour of a node into the ledger: 1 kWh of job a, 0.5 kWh idle, 0.25 kWh of nobody.
func spend(t *testing.T, s *clitest.Terminal, hour time.Time) {
	t.Helper()
	kwh := func(part float64) unit.Energy { return unit.Energy(part * float64(unit.KilowattHour)) }
	book := contract.Book{
		Node: "n1", Boot: "b", Methods: []string{"nvml_counter"},
		Totals: map[string]contract.Totals{"gpu": {Measured: kwh(1.75), Attributed: kwh(1), Idle: kwh(0.5), Unattributed: kwh(0.25)}},
		Running: map[train.JobID]train.Account{"a": {
			Job: "a", Energy: kwh(1), Components: map[string]unit.Energy{"gpu": kwh(1)}, Methods: []string{"nvml_counter"}, Seconds: 3600, PeakPower: 1200 * unit.Watt,
			Metering: map[string]train.Metering{"gpu": {MeasuredSeconds: 3600, ExpectedSeconds: 3600}},
		}},
	}
	clitest.Put(t, s.Bus, contract.Hours, "n1."+hour.UTC().Format("2006-01.02.15"), book)
	clitest.Put(t, s.Bus, contract.Jobs, "a", train.Job{ID: "a", State: train.StateSucceeded, RunSeconds: 3600, Spec: train.Spec{Name: "resnet", User: "ann", Tenant: "vision"}})
	clitest.Put(t, s.Bus, contract.Accounts, "job.a", train.Account{Job: "a", Energy: kwh(1), Epochs: 4, Samples: 400, Final: true, Methods: []string{"nvml_counter"}})
}

func TestReportOfEnergy(t *testing.T) {
	s := clitest.New(t, Command)
	hour := time.Now().Truncate(time.Hour).Add(-5 * time.Hour)
	spend(t, s, hour)
	defaults := filepath.Join(t.TempDir(), "defaults.csv")
	if err := os.WriteFile(defaults, []byte("name,kwh,hours\nresnet,2,0.8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) string {
		t.Helper()
		code, out, told := s.Run(append([]string{"report", "energy", "--since", "1d", "--tariff", exampleSite, "--defaults", defaults}, args...)...)
		if code != exit.OK {
			t.Fatalf("exit code %d: %s", code, told)
		}
		return out
	}
	var r report.Report
	if err := json.Unmarshal([]byte(ask("-o", "json", "--by", "user")), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 3 || r.Rows[0].Key != "ann" || r.Rows[0].KWh != 1 || r.Total.KWh != 1.75 || r.Rows[0].Saving == nil || r.Rows[0].Saving.EnergyRatio != 0.5 {
		t.Errorf("%+v", r)
	}
	if grams := *r.Total.CO2eGrams; grams < 722 || grams > 723 { // 1.75 kWh x 1.2 x 344
		t.Errorf("%g g of CO2e", grams)
	}
	table := ask()
	for _, words := range [][]string{{"JOB", "COST EUR", "SAVED"}, {"a", "resnet", "ann", "succeeded", "250 Wh", "+50 % energy, -25 % time"}, {"_idle", "500 Wh"}, {"Of 1.75 kWh (measured) jobs and their devices took 1.50 kWh, and 250 Wh (14.3 %) belongs to no job"}} {
		if !holdsLine(table, words) {
			t.Errorf("no line with %q in\n%s", words, table)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(ask("-o", "csv", "--by", "node"))).ReadAll()
	if err != nil || len(rows) != 3 || rows[1][0] != "n1" || rows[1][5] != "1.75" || rows[0][len(rows[0])-1] != "gpu_kwh" {
		t.Errorf("%q, error %v", rows, err)
	}
}

// holdsLine says whether a line of a text holds all words.
func holdsLine(text string, words []string) bool {
	for line := range strings.Lines(text) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

func TestReportTakesCarbonFromAnAddress(t *testing.T) {
	s := clitest.New(t, Command)
	hour := time.Now().Truncate(time.Hour).Add(-5 * time.Hour)
	spend(t, s, hour)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("auth-token") != "secret" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"zone":"DE","history":[{"carbonIntensity":200,"datetime":%q,"isEstimated":true}]}`, hour.UTC().Format(time.RFC3339))
	}))
	defer site.Close()
	tariffs := filepath.Join(t.TempDir(), "site.yaml")
	if err := os.WriteFile(tariffs, []byte("carbon: {url: "+site.URL+"}"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(token string) (report.Row, string) {
		code, out, told := s.Run("report", "energy", "--tariff", tariffs, "--carbon-token", token, "-o", "json")
		var r report.Report
		if err := json.Unmarshal([]byte(out), &r); code != exit.OK || err != nil {
			t.Fatalf("exit code %d, error %v: %s", code, err, told)
		}
		return r.Total, told
	}
	if total, _ := ask("secret"); total.CO2eGrams == nil || *total.CO2eGrams != 350 || total.EstimatedRatio != 1 || total.Cost != nil {
		t.Errorf("%+v: want 1.75 kWh at 200 g, all estimated, and no cost", total)
	}
	if total, told := ask("wrong"); total.CO2eGrams != nil || !strings.Contains(told, "who are you?") {
		t.Errorf("%+v, told %q", total, told)
	}
}

func TestReportRefusesWhatMakesNoSense(t *testing.T) {
	s := clitest.New(t, Command)
	for _, args := range [][]string{
		{"--by", "moon"},
		{"--from", "yesterday"},
		{"--since", "7x"},
		{"--since", "7d", "--from", "2026-01-01"},
		{"--from", "2026-02-01", "--to", "2026-01-01"},
		{"--tariff", "/nowhere.yaml"},
		{"--defaults", "/nowhere.csv"},
		{"-o", "pdf"},
	} {
		if code, _, told := s.Run(append([]string{"report", "energy"}, args...)...); code != exit.Usage || told == "" {
			t.Errorf("%v: exit code %d, %q", args, code, told)
		}
	}
}

// TestDefaultsWithMistakes: a line that is no default is refused with its number.
func TestDefaultsWithMistakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "defaults.csv")
	for text, want := range map[string]string{
		"r,nan,inf\n":                      "line 1",
		"r,0,0\n":                          "line 1",
		"name,kwh,hours\nr,1,-2\n":         "line 2",
		"r,0.0001,0.001 trailing junk,5\n": "line 1",
		"r,0.0001,0.001 trailing junk\n":   "line 1",
		"broken\nr,1,2\n":                  "line 1",
		"name,energy,hours\nr,1,2\n":       "line 1",
		"name,kwh,hours\nname,kwh,hours\n": "line 2",
		"r,1,2\n\n,1,2\n":                  "line 3",
		"r,1e300,2\n":                      "line 1",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if known, err := readDefaults(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, error %v, want %s", text, known, err, want)
		}
	}
}

// TestAReportOfNothing: in JSON, lists without entries are empty and never null.
func TestAReportOfNothing(t *testing.T) {
	_, out, told := clitest.New(t, Command).Run("report", "energy", "--since", "1d", "-o", "json")
	if !strings.Contains(out, `"days": []`) || strings.Contains(out, "null") {
		t.Errorf("%s%s", out, told)
	}
}

// exampleReport is a month of made-up figures.
// TestSavingAgainstTheGroupsOwnRuns has a job of a group that ran at another batch size than was submitted.
func TestSavingAgainstTheGroupsOwnRuns(t *testing.T) {
	s := clitest.New(t, Command)
	hour := time.Now().Truncate(time.Hour).Add(-5 * time.Hour)
	spend(t, s, hour)
	spec := train.Spec{Name: "resnet", User: "ann", Tenant: "vision", BatchSize: 64, Energy: &train.EnergySpec{Group: "nightly"}}
	job := train.Job{ID: "a", State: train.StateSucceeded, RunSeconds: 3600, Spec: spec, TunedBatch: 64, SubmittedBatch: 32}
	clitest.Put(t, s.Bus, contract.Jobs, "a", job)
	clitest.Put(t, s.Bus, contract.Groups, contract.GroupKey(spec), contract.Group{Taken: map[int]contract.GroupTotals{32: {Jobs: 2, EnergyJoules: 4 * 3.6e6, Seconds: 2 * 3000}}})
	_, out, told := s.Run("report", "energy", "--since", "1d")
	if !holdsLine(out, []string{"a", "resnet", "+50 % energy, -20 % time"}) {
		t.Errorf("%s%s", out, told)
	}
	defaults := filepath.Join(t.TempDir(), "defaults.csv")
	if err := os.WriteFile(defaults, []byte("resnet,4,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(defaults), "cheaper.csv"), []byte("\ufeffName, kWh, hours\n\"resnet\", 0.5, 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cheaper := filepath.Join(filepath.Dir(defaults), "cheaper.csv")
	if _, out, told := s.Run("report", "energy", "--since", "1d", "--defaults", cheaper); !holdsLine(out, []string{"a", "-100 % energy, +50 % time"}) {
		t.Errorf("a job that used more than its default saved nothing: %s%s", out, told)
	}
	if _, out, told := s.Run("report", "energy", "--since", "1d", "--defaults", defaults); !holdsLine(out, []string{"a", "+75 % energy, +0 % time"}) {
		t.Errorf("a file goes before the group's runs: %s%s", out, told)
	}
}

func exampleReport(t *testing.T) (report.Report, *grid.Grid) {
	t.Helper()
	prices, err := grid.Load(grid.Config{File: exampleSite})
	if err != nil {
		t.Fatal(err)
	}
	first := time.Date(2026, 2, 1, 0, 0, 0, 0, prices.Tariff.Zone())
	q := report.Question{
		By: report.ByUser, From: first, To: first.AddDate(0, 1, 0), Zone: prices.Tariff.Zone(), Price: prices.Price, Jobs: map[train.JobID]train.Job{},
		Accounts: map[train.JobID]train.Account{},
		Default: func(j train.Job) (report.Default, bool) {
			return report.Default{Energy: 100 * unit.KilowattHour, Seconds: 40 * 3600}, j.Spec.Name == "resnet"
		},
	}
	var hours []report.Hour
	for i, user := range []string{"ann", "bob", "carol", "dan", "eve"} {
		id := train.JobID("job-" + user)
		state := train.StateSucceeded
		if user == "dan" {
			state = train.StateFailed
		}
		name := "bert"
		if user == "ann" {
			name = "resnet"
		}
		q.Jobs[id] = train.Job{ID: id, State: state, RunSeconds: 46 * 3600, Spec: train.Spec{Name: name, User: user, Tenant: "lab"}}
		q.Accounts[id] = train.Account{Job: id, Energy: 83 * unit.KilowattHour, Final: true}
		for n := range 80 - 12*i {
			gpu, cpu := unit.Energy(900+137*((n+3*i)%5))*unit.KilowattHour/1000, unit.Energy(60+9*(n%4))*unit.KilowattHour/1000
			hours = append(hours, report.Hour{
				Node: train.NodeID(fmt.Sprintf("gpu%d", 1+i%2)), Start: first.Add(time.Duration(7*n+11*i) * time.Hour), Methods: []string{"nvml_counter", "rapl"},
				Idle:         map[string]unit.Energy{"gpu": 240 * unit.KilowattHour / 1000, "cpu": 70 * unit.KilowattHour / 1000},
				Unattributed: map[string]unit.Energy{"cpu": 12 * unit.KilowattHour / 1000},
				Jobs: []train.Account{{
					Job: id, Energy: gpu + cpu, Components: map[string]unit.Energy{"gpu": gpu, "cpu": cpu}, Methods: []string{"nvml_counter", "rapl"}, Seconds: 3600,
					PeakPower: 1800 * unit.Watt, Metering: map[string]train.Metering{"gpu": {MeasuredSeconds: 3591, ExpectedSeconds: 3600}},
				}},
			})
		}
	}
	return report.Make(q, hours), prices
}

func TestTheReportAsAPage(t *testing.T) {
	r, prices := exampleReport(t)
	var page bytes.Buffer
	if err := writeReportHTML(&page, r, &prices.Tariff); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(page.String(), "</h1>", "</h1>\n<p><em>An example with made-up figures, rendered by `switchyard report energy -o html`.</em></p>", 1)
	if strings.Count(text, "<svg") != 2 || strings.Contains(text, "http://") && !strings.Contains(text, "www.w3.org") {
		t.Errorf("%d pictures; want 2, and nothing fetched from elsewhere", strings.Count(text, "<svg"))
	}
	const path = "../../../../docs/energy-report.html"
	if *clitest.Update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	known, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The last digit of a coordinate is the processor's.
	picture := regexp.MustCompile(`(?s)<svg.*?</svg>`)
	words := func(page string) []string { return strings.Split(picture.ReplaceAllString(page, ""), "\n") }
	if d := cmp.Diff(words(string(known)), words(text)); d != "" {
		t.Errorf("docs/energy-report.html (-known +now; -update writes it anew)\n%.2000s", d)
	}
}

func TestNamesInThePageAreOnlyText(t *testing.T) {
	r, prices := exampleReport(t)
	r.Rows[0].Key = `<script>alert(1)</script>`
	var page bytes.Buffer
	if err := writeReportHTML(&page, r, &prices.Tariff); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page.String(), "<script") {
		t.Error("a user's name became a part of the page")
	}
}
