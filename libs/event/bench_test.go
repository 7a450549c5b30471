package event

import "testing"

// BenchmarkDecodeSubmission reads a job as users submit it.
func BenchmarkDecodeSubmission(b *testing.B) {
	body := []byte(`{"name":"mnist","command":["python","train.py","--lr","0.1"],"image":"pytorch/pytorch:2.9","batch_size":64,"training_set_size":60000,` +
		`"max_epochs":10,"env":{"OMP_NUM_THREADS":"1","MODE":"fast"},"ports":[{"node_port":30000,"container_port":6006}],"priority":70,` +
		`"min_devices":1,"max_devices":4,"strategy":"all_reduce","estimated_hours":1.5,"node_labels":{"gpushare":"true"}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, reasons := DecodeSubmission(body); len(reasons) > 0 {
			b.Fatal(reasons)
		}
	}
}
