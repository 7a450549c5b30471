package jobapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestProgressThatASupervisorReads becomes heartbeats and ends of epochs, and does not count as calls of the code.
func TestProgressThatASupervisorReads(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.background()
	b.put(attempt(1))
	path := "/attempt/t0k3n1/v1/jobs/" + capability + "/progress"
	b.want("POST", path, `{"epochs_done":0,"step":5,"epoch_step":5,"epoch_steps":10,"loss":0.5}`, 200, "{}")
	b.want("POST", path, `{"epochs_done":1,"loss":0.25,"metrics":{"acc":0.9}}`, 200, "{}")
	b.wantError("POST", path, `{"step":-1}`, 400, "BadRequest", "epochs_done: is missing")
	ended := facts[event.EpochEnded](b, event.StreamJobs, event.FactEpochEnded, 1)[0]
	if ended.EpochsDone != 1 || *ended.Loss != 0.25 || ended.Metrics["acc"] != 0.9 {
		t.Errorf("%+v", ended)
	}
	beat := facts[event.Stepped](b, event.StreamSamples, event.FactStepped, 1)[0]
	if beat.Step != 5 || beat.EpochStep != 5 || beat.EpochSteps != 10 || *beat.Loss != 0.5 {
		t.Errorf("%+v", beat)
	}
	if r := b.report(1); r.Spoke || r.EpochsDone != 1 || !r.Steps.Known() {
		t.Errorf("%+v", r)
	}
}

// TestACountThatAnAttemptBeganWithEndsNoEpoch: only one that is new to the attempt does. The time of an epoch is known
// if the end before it was reported.
func TestACountThatAnAttemptBeganWithEndsNoEpoch(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.background()
	second := attempt(2)
	second.StartedEpochs = 7
	b.put(second)
	path := "/attempt/t0k3n2/v1/jobs/" + capability + "/progress"
	for _, body := range []string{
		`{"epochs_done":7,"loss":0.125}`, // of the eighth epoch, which runs
		`{"epochs_done":8,"loss":0.125}`,
		`{"epochs_done":8,"loss":0.1}`,
		`{"epochs_done":9,"loss":0.1}`,
		`{"epochs_done":10,"loss":0.05,"last":true}`,
	} {
		b.want("POST", path, body, 200, "{}")
	}
	for i, ended := range facts[event.EpochEnded](b, event.StreamJobs, event.FactEpochEnded, 3) {
		want := []float64{0.125, 0.1, 0.05}[i]
		if timed := ended.EpochSeconds > 0; ended.EpochsDone != 8+i || *ended.Loss != want || timed != (i == 1) {
			t.Errorf("%+v, want a loss of %g", ended, want)
		}
	}
}

// TestTheStatusProtocolOfKubeflow: the token is a bearer's, epochs are fractions, and a stale attempt is refused.
func TestTheStatusProtocolOfKubeflow(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.put(attempt(1))
	post := func(token, body string) int {
		request, err := http.NewRequestWithContext(within(t), http.MethodPost, b.web.URL+"/v1/jobs/"+capability+"/trainer-status", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		answer, err := b.web.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	const body = `{"trainerStatus":{"lastUpdatedTime":"2026-01-01T00:00:00+00:00","progressPercentage":75,"estimatedRemainingSeconds":9,
		"metrics":[{"name":"loss","value":"0.5"},{"name":"current_step","value":"15"},{"name":"total_steps","value":"20"},{"name":"current_epoch","value":"1.5"},{"name":"x","value":"nan"}]}}`
	if status := post("t0k3n1", body); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	if status := post("t0k3n2", body); status != http.StatusConflict {
		t.Errorf("status %d with another attempt's token", status)
	}
	want := train.Steps{Epoch: 1, Done: 5, Of: 10, Total: 15}
	if r := b.report(1); r.EpochsDone != 1 || r.Spoke || !cmp.Equal(want, r.Steps, cmpopts.IgnoreFields(train.Steps{}, "At", "Seconds")) {
		t.Errorf("%+v", r)
	}
}
