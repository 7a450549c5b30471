package bus_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
)

func TestAnUploadIsStoredOnceAndSweptWhenNobodyNeedsIt(t *testing.T) {
	t.Parallel()
	b := bustest.Connect(t, bustest.Start(t), "test")
	content := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // more than a chunk
	for i, want := range []bool{true, false} {
		if stored, err := b.PutUpload(t.Context(), "needed", bytes.NewReader(content)); err != nil || stored != want {
			t.Fatalf("upload %d: stored %v, %v", i+1, stored, err)
		}
	}
	if _, err := b.PutUpload(t.Context(), "idle", bytes.NewReader(nil)); err != nil {
		t.Fatal(err)
	}
	get := func(hash string) (got []byte, err error) {
		err = b.GetUpload(t.Context(), hash, func(r io.Reader) (err error) {
			got, err = io.ReadAll(r)
			return err
		})
		return got, err
	}
	if got, err := get("needed"); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	needed := func(hash string) (bool, error) { return hash == "needed", nil }
	for now, want := range map[time.Time]int{time.Now(): 0, time.Now().Add(2 * bus.UploadKept): 1} {
		if deleted, err := b.SweepUploads(t.Context(), now, needed); err != nil || deleted != want {
			t.Errorf("deleted %d, %v, want %d", deleted, err, want)
		}
	}
	if _, err := get("idle"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("an upload that nobody needs: %v", err)
	}
	if _, err := get("needed"); err != nil {
		t.Error(err)
	}
}
