package event

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
)

func TestWhatIsPackedComesBack(t *testing.T) {
	for _, size := range []int{0, 1, MaxBodyBytes, MaxBodyBytes + 1, MaxPlanBytes} {
		body := []byte(strings.Repeat("j", size))
		stored, encoding, err := Pack(body)
		if err != nil || (encoding != "") != (size > MaxBodyBytes) || len(stored) > MaxBodyBytes {
			t.Fatalf("%d bytes are stored in %d as %q: %v", size, len(stored), encoding, err)
		}
		if again, err := Unpack(stored, encoding, MaxPlanBytes); err != nil || !bytes.Equal(again, body) {
			t.Errorf("%d bytes come back as %d: %v", size, len(again), err)
		}
	}
}

func TestWhatIsTooLargeIsNotPacked(t *testing.T) {
	noise := make([]byte, MaxStoredBytes+1)
	_, _ = rand.Read(noise)
	if _, _, err := Pack(noise); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d bytes of noise: %v", len(noise), err)
	}
}

func TestNothingElseIsUnpacked(t *testing.T) {
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	if _, err := zip.Write(make([]byte, MaxPlanBytes+1)); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Unpack(bomb.Bytes(), "gzip", MaxPlanBytes); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a bomb: %v", err)
	}
	if _, err := Unpack(bomb.Bytes()[:bomb.Len()/2], "gzip", MaxPlanBytes); err == nil {
		t.Error("half of it is unpacked")
	}
	for encoding, stored := range map[string]string{"gzip": "{}", "zstd": "{}"} {
		if _, err := Unpack([]byte(stored), encoding, MaxPlanBytes); err == nil {
			t.Errorf("%q is unpacked as %s", stored, encoding)
		}
	}
}

// 64 facts of a job of 16 kB that unpack to 16 MiB each are refused after a quarter of a MiB.
func TestAFactThatIsNoPlanUnpacksToLittle(t *testing.T) {
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	if _, err := zip.Write(make([]byte, MaxPlanBytes)); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	allocated := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			for range 64 {
				if _, err := Unpack(bomb.Bytes(), "gzip", MostBytes(JobSubject("a", FactSucceeded))); !errors.Is(err, ErrTooLarge) {
					b.Fatal(err)
				}
			}
		}
	}).AllocedBytesPerOp()
	if most := int64(64 * 8 * MaxBodyBytes); allocated > most {
		t.Errorf("%d bytes were allocated for 64 of them, at most %d are needed", allocated, most)
	}
	if _, err := Unpack(bomb.Bytes(), "gzip", MostBytes(PlanSubject())); err != nil {
		t.Errorf("a plan: %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	stored, encoding, err := Pack([]byte(strings.Repeat("j", MaxBodyBytes+1)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(stored, encoding)
	f.Add([]byte("{}"), "")
	f.Fuzz(func(t *testing.T, stored []byte, encoding string) {
		if body, err := Unpack(stored, encoding, MaxBodyBytes); err == nil && encoding != "" && len(body) > MaxBodyBytes {
			t.Fatalf("%d bytes", len(body))
		}
	})
}

// Facts come from other services, and from clients that speak in their name.
func FuzzDecodeBody(f *testing.F) {
	for i := range Kinds() {
		f.Add(uint(i), []byte(`{"attempt":1,"node":"n1","devices":["gpu:0"],"epochs_done":3}`))
	}
	f.Fuzz(func(_ *testing.T, kind uint, data []byte) {
		all := Kinds()
		_, _ = DecodeBody(all[kind%uint(len(all))], data)
		_, _ = DecodeRequest(all[kind%uint(len(all))], data)
	})
}

func TestOnlyPlansAreLarge(t *testing.T) {
	body := []byte(`{"policy":"` + strings.Repeat("x", MaxBodyBytes) + `"}`)
	if _, err := Decode[PlanDecided](body); err != nil {
		t.Errorf("a plan: %v", err)
	}
	if _, err := Decode[Succeeded](body); !errors.Is(err, ErrTooLarge) {
		t.Errorf("another fact: %v", err)
	}
	kind, _ := Find(Subject{Entity: "plan", Fact: FactDecided, Version: 1})
	if _, err := DecodeBody(kind, body); err != nil {
		t.Errorf("a plan by its kind: %v", err)
	}
}
