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
		if again, err := Unpack(stored, encoding); err != nil || !bytes.Equal(again, body) {
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
	if _, err := Unpack(bomb.Bytes(), "gzip"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a bomb: %v", err)
	}
	if _, err := Unpack(bomb.Bytes()[:bomb.Len()/2], "gzip"); err == nil {
		t.Error("half of it is unpacked")
	}
	for encoding, stored := range map[string]string{"gzip": "{}", "zstd": "{}"} {
		if _, err := Unpack([]byte(stored), encoding); err == nil {
			t.Errorf("%q is unpacked as %s", stored, encoding)
		}
	}
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
