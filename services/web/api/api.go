// Package api declares the HTTP API of the service web: its routes, their parameters and what they answer. The service
// serves this table, the command line asks by it, and docs/openapi.json is made of it.
package api

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/packets"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/explain"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// SocketName is the Unix socket of the service in the data folder.
const SocketName = "web.sock"

// Prefix begins every path of this version.
const Prefix = "/api/v1"

// The routes that answer questions. Those that take facts have the subject of the fact as their name.
const (
	RouteAbout    = "about"
	RouteJobs     = "jobs"
	RouteJob      = "job"
	RouteExplain  = "explanation"
	RouteStands   = "standing"
	RouteWhatIf   = "whatif"
	RouteRehearse = "rehearsal"
	RouteEpochs   = "epochs"
	RouteForecast = "forecasts"
	RouteSuggest  = "suggestion"
	RouteRecords  = "records"
	RouteLog      = "log"
	RouteFiles    = "files"
	RouteNodes    = "nodes"
	RoutePlan     = "plan"
	RouteOutlook  = "plan outlook"
	RouteMinutes  = "minutes"
	RouteModels   = "models"
	RouteUsers    = "users"
	RouteTenants  = "tenants"
	RouteEnergy   = "energy"
	RouteLedger   = "energy ledger"
	RouteNetwork  = "network"
	RoutePaths    = "network paths"
	RouteGroups   = "groups"
	RouteTruth    = "profiles"
	RouteAudit    = "audit"
	RouteSearches = "experiments"
	RouteSearch   = "experiment"
	RouteTrials   = "experiment record"
	RouteChanges  = "changes"
	RouteUpload   = "upload"
	RouteTerminal = "terminal"
	RouteLink     = "link"
	RouteLogin    = "login"
	RouteLogout   = "logout"
)

// SessionPath is where people log in to the page, and out.
const SessionPath = Prefix + "/session"

// SocketHost is the name of the service in the URLs of requests over a Unix socket.
const SocketHost = "switchyard"

// Route is one question that can be asked, or one fact that can be published.
type Route struct {
	// Name is unique.
	Name string
	// Method and Path, whose parts in braces are parameters.
	Method, Path string
	// Doc says what it does.
	Doc string
	// Query are the parameters after the question mark.
	Query []Parameter
	// Fact is what a POST publishes; its body is that of the fact.
	Fact event.Kind
	// Body is an example of the type of the body of the request, if it has one and publishes no fact.
	Body any
	// Media is the type of a body that is no JSON.
	Media string
	// Answer is an example of the type of the body of the answer; nil if it has none.
	Answer any
	// Streams is set if the answer is a stream of server-sent events whose data are of that type.
	Streams bool
}

// Routes is the table of the API.
func Routes() []Route {
	page := pageParameters("records")
	routes := []Route{
		{Name: RouteAbout, Method: "GET", Path: Prefix, Doc: "Which installation this is.", Answer: About{}},
		{Name: RouteJobs, Method: "GET", Path: Prefix + "/jobs", Doc: "The jobs, the newest first.", Query: queryParameters(), Answer: view.Page{}},
		{
			Name: RouteJob, Method: "GET", Path: Prefix + "/jobs/{id}", Doc: "All that is known about a job. It is named by its id, the beginning of its id, or its name (the newest one).",
			Query: queryParameters()[:1], Answer: view.Detail{},
		},
		{
			Name: RouteExplain, Method: "GET", Path: Prefix + "/jobs/{id}/explanation", Answer: explain.Text{},
			Doc:   "What is known about a job in sentences, as `switchyard describe` prints it; the job is named as above.",
			Query: append(queryParameters()[:1:1], zoneParameter()),
		},
		{
			Name: RouteStands, Method: "GET", Path: Prefix + "/jobs/{id}/standing", Doc: "Where a job stands, named as above: its record, where its output is, and what the newest plan says about it.",
			Query: queryParameters()[:1], Answer: view.Standing{},
		},
		{
			Name: RouteWhatIf, Method: "GET", Path: Prefix + "/jobs/{id}/whatif", Answer: rpc.OutlookAnswer{},
			Doc: "What the next plan would be if a job that has not ended, named as above, were different: first as it is, then with each change alone. The planner answers; nothing is changed.",
			Query: append(queryParameters()[:1:1],
				Parameter{Name: "devices", Doc: "Other numbers of devices, joined by commas: a change each."}, Parameter{Name: "priority", Doc: "Another priority.", Whole: true},
				Parameter{Name: "share", Doc: "true: it shares its devices with others."}),
		},
		{
			Name: RouteRehearse, Method: "POST", Path: Prefix + "/jobs/{id}/rehearsal", Body: train.Spec{}, Answer: rpc.Rehearsal{},
			Doc: "What admission and the planner would make of a job if it were submitted under this id now. Nothing is stored.",
		},
		{
			Name: RouteEpochs, Method: "GET", Path: Prefix + "/jobs/{id}/epochs", Doc: "What a job, named as above, has reported at the end of each epoch. Of more than 2,000 or about 1 MiB it has some, spread over all; with after it has all of them, page by page.",
			Query: append(queryParameters()[:1:1], Parameter{Name: "after", Doc: "Only epochs after this number of finished ones: 0, and then the next of the answer before.", Whole: true}), Answer: view.Epochs{},
		},
		{
			Name: RouteForecast, Method: "GET", Path: Prefix + "/jobs/{id}/forecasts", Doc: "What the plans at up to 40 regular times of a job's life, named as above, predicted of it.",
			Query: queryParameters()[:1], Answer: []view.Forecast{},
		},
		{
			Name: RouteRecords, Method: "GET", Path: Prefix + "/records", Answer: view.Held{},
			Doc:   "The records of some jobs. With since it waits until one of them has changed, or the first plan knows it, and has only those; after 20 s the answer is empty.",
			Query: []Parameter{{Name: "id", Doc: "The whole ids of the jobs, joined by commas."}, sinceParameter()},
		},
		{
			Name: RouteLog, Method: "GET", Path: Prefix + "/nodes/{id}/log", Doc: "A piece of the output of a job that has run on the node.", Answer: rpc.LogChunk{},
			Query: []Parameter{jobParameter(), {Name: "offset", Doc: "The bytes before the piece; a negative number counts from the end."}},
		},
		{
			Name: RouteFiles, Method: "GET", Path: Prefix + "/nodes/{id}/files", Doc: "The files of a job that has run on the node, or a piece of one of them.", Answer: rpc.FileAnswer{},
			Query: []Parameter{jobParameter(), {Name: "path", Doc: "The file, as the list names it; without it the answer is the list."}, {Name: "offset", Doc: "The bytes before the piece."}},
		},
		{Name: RouteNodes, Method: "GET", Path: Prefix + "/nodes", Doc: "The nodes and their devices, what keeps jobs off them, the jobs on them and their power.", Query: page, Answer: view.Records[view.Node]{}},
		{
			Name: RoutePlan, Method: "GET", Path: Prefix + "/plan", Answer: train.Plan{},
			Doc: "The newest plan, or the one that was in force at a time in the last 30 days.", Query: []Parameter{atParameter()},
		},
		{
			Name: RouteOutlook, Method: "GET", Path: Prefix + "/plan/whatif", Answer: rpc.OutlookAnswer{},
			Doc:   "What the next plan would be by other policies: first by the one that decides, then by each. The planner answers; nothing is changed.",
			Query: []Parameter{{Name: "policies", Doc: "Names of policies, joined by commas."}},
		},
		{
			Name: RouteMinutes, Method: "GET", Path: Prefix + "/minutes", Answer: []contract.Minute{},
			Doc: "The power of the nodes and the state of their devices in one minute of the last two days.", Query: []Parameter{atParameter()},
		},
		{Name: RouteModels, Method: "GET", Path: Prefix + "/models", Doc: "What was learned about each job.", Query: page, Answer: view.Records[train.Model]{}},
		{Name: RouteUsers, Method: "GET", Path: Prefix + "/users", Doc: "The people who have a role or a tenant of their own. All others are users of the installation's tenant.", Query: page, Answer: view.Records[access.Person]{}},
		{Name: RouteTenants, Method: "GET", Path: Prefix + "/tenants", Doc: "The tenants whose jobs are bounded.", Query: page, Answer: view.Records[access.Tenant]{}},
		{
			Name: RouteEnergy, Method: "GET", Path: Prefix + "/energy", Answer: view.Energy{}, Doc: "The energy of the last days by day, node, user and job, from the ledger.",
			Query: []Parameter{{Name: "days", Doc: "The number of days, today included, at most 92; without it 30.", Whole: true}, zoneParameter()},
		},
		{
			Name: RouteNetwork, Method: "GET", Path: Prefix + "/network", Answer: view.Network{}, Doc: "The network as probes show it: links that lose or delay packets, and the jobs that are kept off them.",
		},
		{
			Name: RouteLedger, Method: "GET", Path: Prefix + "/energy/ledger", Answer: view.Ledger{},
			Doc:   fmt.Sprintf("What the ledger has of the hours between two times at most %d days apart, from which `switchyard report energy` makes its rows.", view.LedgerDays),
			Query: []Parameter{{Name: "from", Doc: "The first hour, as RFC 3339 has it."}, {Name: "to", Doc: "The end, in the same form."}},
		},
		{
			Name: RoutePaths, Method: "GET", Path: Prefix + "/network/paths", Answer: view.Probed{}, Doc: "All probed paths, and the state of each link on them.",
		},
		{
			Name: RouteGroups, Method: "GET", Path: Prefix + "/groups", Answer: []view.Group{},
			Doc: "The groups of recurring jobs: the batch sizes and power limits tried, and what they cost.",
		},
		{
			Name: RouteTruth, Method: "GET", Path: Prefix + "/profiles", Answer: contract.GroundTruth{},
			Doc: "What is known about workloads of trials: what their system parameters cost. The names of workloads, which hold command lines, are for those who may see all specs.",
		},
		{
			Name: RouteAudit, Method: "GET", Path: Prefix + "/audit", Answer: []contract.AuditEntry{},
			Doc: "Who asked for what, by which door, and what became of it, in the order of time.",
			Query: []Parameter{
				{Name: "user", Doc: "Only what this person asked for."},
				{Name: "job", Doc: "Only what is about the job with this whole id."},
				{Name: "from", Doc: "Only what was asked from this time on, as RFC 3339 has it."},
			},
		},
		{
			Name: RouteSearches, Method: "GET", Path: Prefix + "/experiments", Answer: []view.ExperimentLine{}, Doc: "The experiments, the newest first.",
		},
		{
			Name: RouteSearch, Method: "GET", Path: Prefix + "/experiments/{id}", Answer: view.Experiment{},
			Doc: "An experiment: its trials with the results of their epochs, the rungs of its search, and the best result over time and energy.",
		},
		{
			Name: RouteTrials, Method: "GET", Path: Prefix + "/experiments/{id}/record", Answer: contract.ExperimentRecord{},
			Doc: "The whole record of an experiment, from which `switchyard tune` shows its decisions and results.",
		},
		{
			Name: RouteChanges, Method: "GET", Path: Prefix + "/changes", Streams: true, Answer: Changes{},
			Doc: "What changes from now on, or since a position, as events named changed. An event named reload says that the changes since the position are forgotten. " +
				"The id of an event is the position after it.",
			Query: []Parameter{sinceParameter()},
		},
		{
			Name: RouteSuggest, Method: "POST", Path: Prefix + "/suggestions", Body: contract.SuggestionRequest{}, Answer: contract.Suggestion{},
			Doc: "Where a search goes next whose trials the client runs. Nothing is stored.",
		},
		{
			Name: RouteUpload, Method: "PUT", Path: Prefix + "/uploads/{id}", Media: "application/x-tar", Answer: Uploaded{},
			Doc: "Stores a folder for the jobs of who sends it. <id> is the SHA-256 of the archive in hex, which a submission then names as `upload`. What is there already need not be sent: ask with Expect: 100-continue.",
		},
		{
			Name: RouteTerminal, Method: "POST", Path: Prefix + "/jobs/{id}/terminal", Media: packets.MediaType,
			Doc: "Connects the terminal of a job's owner with the job, by its whole id. The body is what is typed, the answer what is seen, both at the same time: packets, each after its length as four bytes, the most significant first. The first one of the body is a JSON object with secret, size, term and command; the others begin with d (bytes), s (a size as JSON) or, in the answer, x (the exit status as JSON: the program has ended).",
		},
		{
			Name: RouteLink, Method: "POST", Path: Prefix + "/links", Answer: Link{},
			Doc: "Makes a link that logs who asks in to the page, once. It is made over a Unix socket alone, whose other end the kernel knows.",
		},
		{
			Name: RouteLogin, Method: "POST", Path: SessionPath, Body: Login{},
			Doc: "Begins a session, whose cookie the answer sets, by the token of a link.",
		},
		{Name: RouteLogout, Method: "DELETE", Path: SessionPath, Doc: "Ends the session."},
	}
	for _, k := range event.Kinds() {
		if collection := Collection(k.Entity); k.Asked() && collection != "" {
			routes = append(routes, Route{
				Name: k.Subject(), Method: "POST", Path: Prefix + "/" + collection + "/{id}/" + k.Fact, Fact: k, Answer: Accepted{},
				Doc: k.Doc + " The answer comes when the fact is stored; what follows shows in the records.",
			})
		}
	}
	return routes
}

func zoneParameter() Parameter {
	return Parameter{Name: "zone", Doc: "The zone of times and days, as Europe/Berlin; without it that of the service."}
}

func atParameter() Parameter { return Parameter{Name: "at", Doc: "The time, as RFC 3339 has it."} }

func jobParameter() Parameter { return Parameter{Name: "job", Doc: "The whole id of the job."} }

func sinceParameter() Parameter {
	return Parameter{Name: "since", Doc: "The " + PositionHeader + " of an answer. A client that comes back to a stream sends the header instead."}
}

// Collection returns the part of a path for an entity of facts, or "" if it has none.
func Collection(entity string) string {
	switch entity {
	case "job":
		return "jobs"
	case "node":
		return "nodes"
	case "tune":
		return "experiments"
	case event.EntityUser:
		return "users"
	case event.EntityTenant:
		return "tenants"
	}
	return ""
}

// Accepted says that a fact is stored.
type Accepted struct {
	// Subject is where.
	Subject string `json:"subject"`
	// Repeat is set if it was stored before.
	Repeat bool `json:"repeat,omitempty"`
}

// Uploaded says that a folder is stored.
type Uploaded struct {
	// Repeat is set if its sender had uploaded the same folder before.
	Repeat bool `json:"repeat,omitempty"`
}

// KeyHeader names the attempt to publish a fact: the same fact under the same key is stored once. Without it every
// request is a fact of its own, but for submissions, whose id is the key.
const KeyHeader = "Idempotency-Key"

// PositionHeader is where a list or a job stands among the changes.
const PositionHeader = "Last-Event-ID"

// The names of events.
const (
	EventChanged = "changed"
	EventReload  = "reload"
)

// Changes names what has changed. A record that changed several times is named once.
type Changes struct {
	// Jobs are as the list of jobs shows them now.
	Jobs []view.Job `json:"jobs,omitempty"`
	// Gone are jobs whose records were removed.
	Gone []train.JobID `json:"gone,omitempty"`
	// Nodes are the nodes whose records changed.
	Nodes []train.NodeID `json:"nodes,omitempty"`
	// Models are the jobs whose models changed.
	Models []train.JobID `json:"models,omitempty"`
	// Plan is the generation of the plan, if it is a new one: the predictions of all jobs may have changed.
	Plan uint64 `json:"plan,omitempty"`
}

// Empty reports whether nothing has changed.
func (c Changes) Empty() bool {
	return len(c.Jobs)+len(c.Gone)+len(c.Nodes)+len(c.Models) == 0 && c.Plan == 0
}

// About says which installation answers.
type About struct {
	// Bus is the URL of the bus whose records are served.
	Bus string `json:"bus"`
	// Version is that of the service, Build the same with the facts and records that it speaks.
	Version string         `json:"version"`
	Build   contract.Build `json:"build"`
	// Person is who asks. The owner of the installation has no name.
	Person access.Person `json:"person"`
	// May says to whose jobs the person may do what, in the words of the table of permissions: no, own, tenant's or all.
	May map[access.Operation]string `json:"may"`
	// Now is the time of the service.
	Now time.Time `json:"now"`
	// Trouble says why the bus stores nothing, for example that its disk is full; empty if it does.
	Trouble string `json:"trouble,omitempty"`
}

// Link logs a person in to the page.
type Link struct {
	// URL works once.
	URL string `json:"url"`
	// Until is when it ends unused.
	Until time.Time `json:"until"`
}

// Login is what a person who follows a link sends.
type Login struct {
	// Token is the part of the link after login=.
	Token string `json:"token"`
}

// Problem is the body of every answer that is no success, as RFC 9457 has it.
type Problem struct {
	// Title is the meaning of the status.
	Title string `json:"title"`
	// Status is that of the answer.
	Status int `json:"status"`
	// Detail says what went wrong, and where.
	Detail string `json:"detail"`
	// Fix says what to do about it.
	Fix string `json:"fix,omitempty"`
	// RetrySeconds is when the same request will be taken, if it comes too early.
	RetrySeconds int `json:"retry_after_seconds,omitempty"`
	// Reasons are all that is wrong with the body of the request.
	Reasons []train.Reason `json:"reasons,omitempty"`
}

// ProblemType is the media type of a Problem.
const ProblemType = "application/problem+json"

// Parameter is a part of a query: how it is written in a URL and where it belongs.
type Parameter struct {
	Name, Doc string
	// Whole is set for a number.
	Whole bool
	get   func(view.Query) string
	set   func(*view.Query, string) error
}

func queryParameters() []Parameter {
	return append([]Parameter{
		text("user", "Only jobs of this user.", func(q *view.Query) *string { return &q.User }),
		{
			Name: "state", Doc: "Only jobs in these states, joined by commas. An array that has not ended is judged by its jobs: if they are left out of the list, one of them must be in such a state, else all that have not ended.",
			get: func(q view.Query) string { return strings.Join(train.Words(q.States), ",") },
			set: func(q *view.Query, v string) (err error) {
				q.States, err = States(strings.Split(v, ","))
				return err
			},
		},
		{
			Name: "name", Doc: "Only jobs whose name matches this pattern, such as resnet*.",
			get: func(q view.Query) string { return q.Name },
			set: func(q *view.Query, v string) error { q.Name = v; return CheckName(v) },
		},
		text("project", "Only jobs of this project.", func(q *view.Query) *string { return &q.Project }),
		{
			Name: "label", Doc: "Only jobs with these labels, as KEY=VALUE joined by commas.",
			get: func(q view.Query) string { return train.JoinLabels(q.Labels) },
			set: func(q *view.Query, v string) (err error) {
				q.Labels, err = Labels(strings.Split(v, ","))
				return err
			},
		},
		flag("rejected", "Without submissions that were rejected, unless state asks for them.", func(q *view.Query) *bool { return &q.NoRejected }),
		text("array", "Only the array with this id, and its jobs.", func(q *view.Query) *string { return &q.Array }),
		flag("members", "Without the jobs of arrays, unless array asks for those of one.", func(q *view.Query) *bool { return &q.NoMembers }),
		flag("trials", "Without the trials of experiments.", func(q *view.Query) *bool { return &q.NoTrials }),
		number("newest", "At most this number of jobs, in any state; 0: all.", func(q *view.Query) *int { return &q.Newest }),
		number("finished", "At most this number of jobs that have ended; 0: all.", func(q *view.Query) *int { return &q.Finished }),
	}, pageParameters("jobs")...)
}

// pageParameters choose a page of a list.
func pageParameters(what string) []Parameter {
	return []Parameter{
		number("limit", fmt.Sprintf("The largest number of %s in the answer; without it %d, and never more than %d.", what, DefaultLimit, MaxLimit), func(q *view.Query) *int { return &q.Limit }),
		text("after", "The next of the answer before.", func(q *view.Query) *string { return &q.After }),
	}
}

// DefaultLimit is the largest number of items in an answer if the request names none, MaxLimit if it does. Each page
// costs a pass over all jobs, so a client that wants all asks for large ones.
const (
	DefaultLimit = 1000
	MaxLimit     = 10_000
)

func text(name, doc string, field func(*view.Query) *string) Parameter {
	return Parameter{
		Name: name, Doc: doc,
		get: func(q view.Query) string { return *field(&q) },
		set: func(q *view.Query, v string) error { *field(q) = v; return nil },
	}
}

// flag is a parameter that leaves something out if it is false.
func flag(name, doc string, without func(*view.Query) *bool) Parameter {
	return Parameter{
		Name: name, Doc: "false: " + strings.ToLower(doc[:1]) + doc[1:],
		get: func(q view.Query) string {
			if *without(&q) {
				return "false"
			}
			return ""
		},
		set: func(q *view.Query, v string) error {
			if v != "true" && v != "false" {
				return fmt.Errorf("want true or false, found %q", v)
			}
			*without(q) = v == "false"
			return nil
		},
	}
}

func number(name, doc string, field func(*view.Query) *int) Parameter {
	return Parameter{
		Name: name, Doc: doc, Whole: true,
		get: func(q view.Query) string {
			if n := *field(&q); n > 0 {
				return strconv.Itoa(n)
			}
			return ""
		},
		set: func(q *view.Query, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil || n < 0 {
				return fmt.Errorf("want a whole number from 0, found %q", v)
			}
			*field(q) = n
			return nil
		},
	}
}

// Encode writes a query as the parameters of a URL.
func Encode(q view.Query) url.Values {
	values := url.Values{}
	for _, p := range queryParameters() {
		if v := p.get(q); v != "" {
			values.Set(p.Name, v)
		}
	}
	return values
}

// Decode reads the parameters that a route has.
func (r Route) Decode(values url.Values) (view.Query, error) {
	var q view.Query
	known := r.Query
	for name, given := range values {
		i := slices.IndexFunc(known, func(p Parameter) bool { return p.Name == name })
		if i < 0 {
			return q, unknownParameter(name, known)
		}
		if len(given) != 1 {
			return q, fmt.Errorf("%s: given %d times, want it once", name, len(given))
		}
		if known[i].set == nil {
			continue // the route reads it itself
		}
		if err := known[i].set(&q, given[0]); err != nil {
			return q, fmt.Errorf("%s: %w", name, err)
		}
	}
	if q.Limit == 0 {
		q.Limit = DefaultLimit
	}
	q.Limit = min(q.Limit, MaxLimit)
	return q, nil
}

func unknownParameter(name string, known []Parameter) error {
	names := make([]string, len(known))
	for i, p := range known {
		names[i] = p.Name
	}
	if near := train.NearMiss(name, names); near != "" {
		return fmt.Errorf("%s: no such parameter (did you mean %s?)", name, near)
	}
	if len(names) == 0 {
		return fmt.Errorf("%s: no such parameter; there is none here", name)
	}
	return fmt.Errorf("%s: no such parameter; there are %s", name, strings.Join(names, ", "))
}

// UnknownStateError reports that a word is no state of jobs. Fix says which are.
type UnknownStateError struct{ Word, Fix string }

// Error implements error.
func (e *UnknownStateError) Error() string { return fmt.Sprintf("%q: no such state", e.Word) }

// StateNames returns the names of the states of jobs.
func StateNames() []string {
	var known []string
	for _, s := range train.States() {
		known = append(known, string(s))
	}
	return known
}

// States reads the names of states.
func States(words []string) ([]train.State, error) {
	known := StateNames()
	var states []train.State
	for _, word := range words {
		clean := strings.ToLower(strings.TrimSpace(word))
		if !slices.Contains(known, clean) {
			fix := "states are " + strings.Join(known, ", ")
			if near := train.NearMiss(clean, known); near != "" {
				fix = "did you mean " + near + "?"
			}
			return nil, &UnknownStateError{word, fix}
		}
		states = append(states, train.State(clean))
	}
	return states, nil
}

// CheckName returns why a text is no pattern of names.
func CheckName(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("%q: want a pattern such as resnet*: a bracket is not closed, or a backslash ends it", pattern)
	}
	return nil
}

// Labels reads labels, each as KEY=VALUE.
func Labels(pairs []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || !train.IsLabel(key, value) {
			return nil, fmt.Errorf("%q: want a label as KEY=VALUE, such as phase=warmup", pair)
		}
		labels[key] = value
	}
	return labels, nil
}
