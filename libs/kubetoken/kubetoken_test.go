package kubetoken

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// server plays the API server: a token is the name of its user, and "!" has it fail.
type server struct {
	now       time.Time
	questions int
	down      bool
	gone      bool
}

var errDown = errors.New("down")

func (s *server) reviewer() *Reviewer {
	c := fake.NewClientset()
	c.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s.questions++
		if s.down {
			return true, nil, errDown
		}
		create, _ := a.(clienttesting.CreateAction)
		review, _ := create.GetObject().(*authenticationv1.TokenReview)
		if review.Spec.Token != "" && !s.gone {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: review.Spec.Audiences, User: authenticationv1.UserInfo{Username: review.Spec.Token}}
		}
		if review.Spec.Token == "any" { // an authenticator that knows of no audiences
			review.Status.Audiences = nil
		}
		return true, review, nil
	})
	return New(c.AuthenticationV1().TokenReviews(), "switchyard", func() time.Time { return s.now })
}

func TestNamesOfTokens(t *testing.T) {
	s := &server{}
	r := s.reviewer()
	for token, want := range map[string]string{
		"ann":                                "ann",
		"system:serviceaccount:vision:train": "vision.train",
		"system:serviceaccount:a:b.c":        "a.b.c",
		"vision.train":                       "", // passes for a service account
		"ann@example.com":                    "",
		"system:node:n1":                     "",
		"system:serviceaccount:a:b:c":        "",
		"any":                                "",
		"":                                   "",
	} {
		name, err := r.Who(t.Context(), token)
		if name != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%q: %q, %v; want %q", token, name, err, want)
		}
	}
}

// An answer counts for a while: a token that is withdrawn is refused after a minute, and a new one is known after ten
// seconds. What the API server did not say is not remembered.
func TestAnswersCountForAWhile(t *testing.T) {
	s := &server{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	r := s.reviewer()
	ask := func(what string, wantErr error, questions int) {
		t.Helper()
		if _, err := r.Who(context.Background(), "ann"); !errors.Is(err, wantErr) || s.questions != questions {
			t.Errorf("%s: %v after %d questions, want %v after %d", what, err, s.questions, wantErr, questions)
		}
	}
	s.down = true
	ask("the server is down", errDown, 1)
	s.down = false
	ask("it is back", nil, 2)
	s.gone = true
	s.now = s.now.Add(acceptedFor - 1)
	ask("withdrawn a moment ago", nil, 2)
	s.now = s.now.Add(1)
	ask("withdrawn a minute ago", ErrRefused, 3)
	s.gone = false
	ask("back a moment ago", ErrRefused, 3)
	s.now = s.now.Add(refusedFor)
	ask("back ten seconds ago", nil, 4)
	for i := range 2 * mostKnown {
		if _, err := r.Who(t.Context(), "u"+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.known) > mostKnown {
		t.Errorf("%d answers are remembered, want at most %d", len(r.known), mostKnown)
	}
}
