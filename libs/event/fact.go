package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// MaxBodyBytes is the largest body that is read; larger ones are refused. Only plans may be larger.
	MaxBodyBytes = 256 << 10
	// MaxPlanBytes bounds a plan: it is one message whatever the number of jobs, so that no reader sees half of it.
	MaxPlanBytes = 16 << 20
	// MaxStoredBytes is the largest stored body. A plan of the largest size, packed, takes about three quarters of it.
	MaxStoredBytes = 4 << 20
)

// ErrTooLarge says that a body exceeds the largest size that is read.
var ErrTooLarge = errors.New("too large")

// The headers of a fact beside Nats-Msg-Id.
const (
	HeaderEncoding    = "Content-Encoding"
	HeaderTime        = "Yard-Time"
	HeaderSource      = "Yard-Source"
	HeaderBy          = "Yard-By"
	HeaderDoor        = "Yard-Door"
	HeaderProof       = "Yard-Proof"
	HeaderCause       = "Yard-Cause"
	HeaderTraceParent = "traceparent"
)

// Fact is one fact on its way to the bus.
type Fact struct {
	Subject Subject
	// Key is the idempotency key: the same fact has the same key however often it is published.
	Key string
	// Time is when it happened, Source is the service that says so, Cause is the key of the fact it follows from.
	Time   time.Time
	Source string
	Cause  string
	// By is the person who asks for it, as the service web knows him; empty for the owner of the installation. Door is
	// how he came to web.
	By, Door string
	// TraceParent is the W3C trace context, passed on from the fact that this one follows from.
	TraceParent string
	Body        any
	// Once asks the bus to store the fact only if its subject has none yet.
	Once bool
}

// JobFact returns a fact about a job; key is what follows `job/<id>/`.
func JobFact(id train.JobID, fact, key string, body any) Fact {
	return Fact{Subject: JobSubject(id, fact), Key: fmt.Sprintf("job/%s/%s", id, key), Body: body}
}

// OnceFact returns a fact that a job has at most once.
func OnceFact(id train.JobID, fact, key string, body any) Fact {
	f := JobFact(id, fact, key, body)
	f.Once = true
	return f
}

// Encode returns the body as JSON. It fails on NaN and infinities.
func (f Fact) Encode() ([]byte, error) {
	data, err := json.Marshal(f.Body)
	if err == nil {
		err = checkSize(f.Body, data)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", f.Subject, err)
	}
	return data, nil
}

// Decode decodes the body of a fact between services: unknown keys are ignored, anything else must fit.
func Decode[T any](data []byte) (T, error) {
	var body T
	err := checkSize(body, data)
	if err == nil {
		err = json.Unmarshal(data, &body)
	}
	if err != nil {
		return body, fmt.Errorf("decode %T: %w", body, err)
	}
	return body, nil
}

// large is a body with its own bound.
type large interface{ maxBytes() int }

func (PlanDecided) maxBytes() int { return MaxPlanBytes }

func checkSize(body any, data []byte) error {
	most := MaxBodyBytes
	if l, ok := body.(large); ok {
		most = l.maxBytes()
	}
	if len(data) > most {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), most)
	}
	return nil
}
