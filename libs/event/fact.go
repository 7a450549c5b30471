package event

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// MaxBodyBytes is the largest body that is read; a larger one is refused.
const MaxBodyBytes = 256 << 10

// The headers of a fact beside Nats-Msg-Id.
const (
	HeaderTime        = "Yard-Time"
	HeaderSource      = "Yard-Source"
	HeaderCause       = "Yard-Cause"
	HeaderTraceParent = "traceparent"
)

// Fact is one fact on its way to the bus.
type Fact struct {
	Subject Subject
	// Key is the idempotency key: the same fact has the same key however often it is published.
	Key string
	// Time is when it happened, Source who says so, Cause the key of the fact that it follows from.
	Time   time.Time
	Source string
	Cause  string
	// TraceParent is the W3C trace context, handed on from the fact that this one follows from.
	TraceParent string
	Body        any
	// Once asks the bus to store the fact only if its subject has none yet.
	Once bool
}

// JobFact makes a fact about a job; key is what follows `job/<id>/`.
func JobFact(id train.JobID, fact, key string, body any) Fact {
	return Fact{Subject: JobSubject(id, fact), Key: fmt.Sprintf("job/%s/%s", id, key), Body: body}
}

// OnceFact makes a fact of which a job has at most one.
func OnceFact(id train.JobID, fact, key string, body any) Fact {
	f := JobFact(id, fact, key, body)
	f.Once = true
	return f
}

// Encode gives the body as JSON. It fails on NaN and infinities.
func (f Fact) Encode() ([]byte, error) {
	data, err := json.Marshal(f.Body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", f.Subject, err)
	}
	if len(data) > MaxBodyBytes {
		return nil, fmt.Errorf("encode %s: %d bytes, at most %d", f.Subject, len(data), MaxBodyBytes)
	}
	return data, nil
}

// Decode reads the body of a fact between services: unknown keys are ignored, anything else must fit.
func Decode[T any](data []byte) (T, error) {
	var body T
	if len(data) > MaxBodyBytes {
		return body, fmt.Errorf("decode %T: %d bytes, at most %d", body, len(data), MaxBodyBytes)
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return body, fmt.Errorf("decode %T: %w", body, err)
	}
	return body, nil
}
