package influx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/influxdata/influxdb-client-go/v2/api"
	"github.com/influxdata/influxdb-client-go/v2/domain"

	"github.com/switchyard-dl/switchyard/services/energy/series"
)

// Setup names the databases that a server needs.
type Setup struct {
	// Database is the prefix of the names of its buckets, or of 1.8's retention policies.
	Database string
	// PipeTune is the database of PipeTune's own names; empty for none.
	PipeTune string
	// GroundTruth is the database of the ground truth of PipeTune's users; empty for none.
	GroundTruth string
}

// named returns the databases without stages.
func (s Setup) named() []string {
	return slices.DeleteFunc([]string{s.PipeTune, s.GroundTruth}, func(name string) bool { return name == "" })
}

// Bucket returns the bucket of a stage.
func Bucket(database, stage string) string { return database + "/" + stage }

// Prepare creates or corrects everything that is needed, and returns what it did. It may be repeated.
func (c *Client) Prepare(ctx context.Context, s Setup) ([]string, error) {
	modern, err := c.modern(ctx)
	if err != nil {
		return nil, err
	}
	if modern {
		return c.prepareBuckets(ctx, s)
	}
	return c.prepareDatabase(ctx, s)
}

// modern distinguishes version 2, which has a setup API, from 1.8, which has none.
func (c *Client) modern(ctx context.Context) (bool, error) {
	service := c.api.HTTPService()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, service.ServerAPIURL()+"setup", nil)
	if err != nil {
		return false, fmt.Errorf("reach %s: %w", c.config.URL, err)
	}
	response, err := service.DoHTTPRequestWithResponse(request, nil)
	if err != nil {
		return false, fmt.Errorf("reach %s: %w", c.config.URL, err)
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK, nil
}

// prepareDatabase sets up 1.8: a database, a retention policy for each stage, a continuous query for each measurement
// and stage.
func (c *Client) prepareDatabase(ctx context.Context, s Setup) ([]string, error) {
	var did []string
	for _, step := range databaseSteps(s) {
		err := c.execute(ctx, step.create)
		if errors.Is(err, errStatement) { // there was one already, and a different one
			for _, statement := range step.correct {
				if err = c.execute(ctx, statement); err != nil {
					break
				}
			}
		}
		if err != nil {
			return nil, err
		}
		did = append(did, step.create)
	}
	return did, nil
}

// step creates one thing, or corrects the existing one of that name.
type step struct {
	create  string
	correct []string
}

func databaseSteps(s Setup) []step {
	steps := []step{{create: fmt.Sprintf(`CREATE DATABASE %q`, s.Database)}}
	for _, name := range s.named() {
		steps = append(steps, step{create: fmt.Sprintf(`CREATE DATABASE %q`, name)})
	}
	for _, stage := range series.Stages() {
		policy := fmt.Sprintf(`RETENTION POLICY %q ON %q DURATION %s REPLICATION 1`, stage.Name, s.Database, duration(stage.Keep))
		if stage.From == "" {
			policy += " DEFAULT"
		}
		steps = append(steps, step{create: "CREATE " + policy, correct: []string{"ALTER " + policy}})
	}
	for _, stage := range series.Stages()[1:] {
		for _, r := range series.Rollups() {
			create := continuousQuery(s.Database, stage, r)
			drop := fmt.Sprintf(`DROP CONTINUOUS QUERY %q ON %q`, queryName(stage, r), s.Database)
			steps = append(steps, step{create: create, correct: []string{drop, create}})
		}
	}
	return steps
}

// errStatement marks a statement that the server understood but did not carry out.
var errStatement = errors.New("not carried out")

// execute runs a statement of InfluxQL.
func (c *Client) execute(ctx context.Context, statement string) error {
	status, text, err := c.post(ctx, "query", "application/x-www-form-urlencoded", url.Values{"q": {statement}}.Encode())
	if err != nil {
		return fmt.Errorf("execute %s: %w", statement, err)
	}
	var answer struct {
		Error   string `json:"error"`
		Results []struct {
			Error string `json:"error"`
		} `json:"results"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK {
		return fmt.Errorf("execute %s: HTTP %d: %s", statement, status, text)
	}
	for _, r := range answer.Results {
		if r.Error != "" {
			return fmt.Errorf("execute %s: %w: %s", statement, errStatement, r.Error)
		}
	}
	return nil
}

func queryName(stage series.Stage, r series.Rollup) string { return r.Measurement + "_" + stage.Name }

// continuousQuery returns the InfluxQL that keeps a stage of a measurement up to date, as a CREATE statement. It
// recomputes past windows, for points that were written late.
func continuousQuery(database string, stage series.Stage, r series.Rollup) string {
	var fields []string
	for _, f := range r.Fields {
		fields = append(fields, fmt.Sprintf(`%s(%q) AS %q`, f.Function, stage.Source(f), f.As))
	}
	by := "*"
	if len(r.Tags) > 0 {
		quoted := make([]string, len(r.Tags))
		for i, t := range r.Tags {
			quoted[i] = fmt.Sprintf("%q", t)
		}
		by = strings.Join(quoted, ", ")
	}
	return fmt.Sprintf(`CREATE CONTINUOUS QUERY %q ON %q RESAMPLE EVERY %s FOR %s BEGIN SELECT %s INTO %q.%q.%q FROM %q.%q.%q GROUP BY time(%s), %s END`,
		queryName(stage, r), database, duration(remake), duration(stage.Back), strings.Join(fields, ", "),
		database, stage.Name, r.Measurement, database, stage.From, r.Measurement, duration(stage.Every), by)
}

// remake is the interval at which windows are recomputed.
const remake = 5 * time.Minute

// duration formats d for InfluxQL and Flux, which know no decimals.
func duration(d time.Duration) string {
	if d%time.Hour == 0 {
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dm", d/time.Minute)
}

// prepareBuckets sets up version 2: a bucket of each stage, a task for each measurement and stage.
func (c *Client) prepareBuckets(ctx context.Context, s Setup) ([]string, error) {
	org, err := c.api.OrganizationsAPI().FindOrganizationByName(ctx, c.config.Org)
	if err != nil {
		return nil, fmt.Errorf("find organisation %q: %w", c.config.Org, err)
	}
	var did []string
	buckets := map[string]time.Duration{}
	for _, stage := range series.Stages() {
		buckets[Bucket(s.Database, stage.Name)] = stage.Keep
	}
	for _, name := range s.named() {
		buckets[name] = 0
	}
	for name, keep := range buckets {
		if err := c.ensureBucket(ctx, org, name, keep); err != nil {
			return nil, err
		}
		did = append(did, fmt.Sprintf("bucket %s, kept %s", name, duration(keep)))
	}
	slices.Sort(did)
	for _, stage := range series.Stages()[1:] {
		for _, r := range series.Rollups() {
			if err := c.ensureTask(ctx, *org.Id, "switchyard "+queryName(stage, r), task(s.Database, stage, r)); err != nil {
				return nil, err
			}
			did = append(did, "task switchyard "+queryName(stage, r))
		}
	}
	return did, nil
}

func (c *Client) ensureBucket(ctx context.Context, org *domain.Organization, name string, keep time.Duration) error {
	kind := domain.RetentionRuleTypeExpire
	rule := domain.RetentionRule{EverySeconds: int64(keep.Seconds()), Type: &kind}
	found, err := c.api.BucketsAPI().FindBucketByName(ctx, name)
	if err != nil {
		_, err = c.api.BucketsAPI().CreateBucketWithName(ctx, org, name, rule)
	} else {
		found.RetentionRules = domain.RetentionRules{rule}
		_, err = c.api.BucketsAPI().UpdateBucket(ctx, found)
	}
	if err != nil {
		return fmt.Errorf("ensure bucket %s: %w", name, err)
	}
	return nil
}

// ensureTask replaces the task of a name.
func (c *Client) ensureTask(ctx context.Context, org, name, flux string) error {
	tasks := c.api.TasksAPI()
	known, err := tasks.FindTasks(ctx, &api.TaskFilter{Name: name, OrgID: org})
	if err != nil {
		return fmt.Errorf("find task %s: %w", name, err)
	}
	for _, t := range known {
		if err := tasks.DeleteTaskWithID(ctx, t.Id); err != nil {
			return fmt.Errorf("replace task %s: %w", name, err)
		}
	}
	if _, err := tasks.CreateTaskWithEvery(ctx, name, flux, duration(remake), org); err != nil {
		return fmt.Errorf("make task %s: %w", name, err)
	}
	return nil
}

// task returns the Flux that keeps a stage of a measurement up to date.
func task(database string, stage series.Stage, r series.Rollup) string {
	var b strings.Builder
	b.WriteString("import \"date\"\nimport \"experimental\"\n\n")
	for _, f := range r.Fields {
		b.WriteString(thin(database, stage, r, f))
		fmt.Fprintf(&b, "    |> to(bucket: %q)\n\n", Bucket(database, stage.Name))
	}
	return b.String()
}

// thin returns the Flux that computes the windows of one field. The first window must be whole, else it would replace a
// better one.
func thin(database string, stage series.Stage, r series.Rollup, f series.Thinned) string {
	group := ""
	if len(r.Tags) > 0 {
		columns := append([]string{"_measurement", "_field"}, r.Tags...)
		group = fmt.Sprintf("    |> group(columns: [\"%s\"])\n", strings.Join(columns, `", "`))
	}
	rename := ""
	if f.As != stage.Source(f) {
		rename = fmt.Sprintf("    |> set(key: \"_field\", value: %q)\n", f.As)
	}
	every := duration(stage.Every)
	return fmt.Sprintf("from(bucket: %q)\n    |> range(start: experimental.subDuration(d: %s, from: date.truncate(t: now(), unit: %s)))\n"+
		"    |> filter(fn: (r) => r._measurement == %q and r._field == %q)\n%s"+
		"    |> aggregateWindow(every: %s, fn: %s, timeSrc: \"_start\", createEmpty: false)\n%s",
		Bucket(database, stage.From), duration(stage.Back), every, r.Measurement, stage.Source(f), group, every, f.Function, rename)
}
