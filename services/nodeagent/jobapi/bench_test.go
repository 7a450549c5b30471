package jobapi

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/strict"
)

// BenchmarkHeartbeat decodes the body that training code sends most often.
func BenchmarkHeartbeat(b *testing.B) {
	body := []byte(`{"step":1200,"epoch":3,"step_seconds":0.0812,"wait_seconds":0.0021,"rank":0,"steps":10,"samples":640,"loss":0.4127,` +
		`"metrics":{"accuracy":0.913,"lr":0.001},"grad_sqr":0.0031,"grad_var":0.021,"gpu_memory_bytes":4294967296,"micro_batch":32,"generation":7}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var beat stepsBody
		if problems := parseAndCheck(body, &beat, func() strict.Problems { return beat.check() }); problems != nil {
			b.Fatal(problems)
		}
	}
}
