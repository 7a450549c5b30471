package bus_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
)

func TestAnUploadIsStoredOnceAndSweptWhenNobodyNeedsIt(t *testing.T) {
	t.Parallel()
	b := bustest.Connect(t, bustest.Start(t), "test")
	content := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // more than a chunk
	for i, want := range []bool{true, false} {
		if stored, err := b.PutUpload(t.Context(), "", "needed", bytes.NewReader(content)); err != nil || stored != want {
			t.Fatalf("upload %d: stored %v, %v", i+1, stored, err)
		}
	}
	if _, err := b.PutUpload(t.Context(), "", "idle", bytes.NewReader(nil)); err != nil {
		t.Fatal(err)
	}
	get := func(hash string) (got []byte, err error) {
		err = b.GetUpload(t.Context(), "", hash, func(r io.Reader) (err error) {
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

// A person has a copy of his own, and gets nothing that another person has uploaded. What came over the bus is for
// everybody whom admission lets name it.
func TestAnUploadIsItsPersons(t *testing.T) {
	t.Parallel()
	b := bustest.Connect(t, bustest.Start(t), "test")
	for person, hash := range map[string]string{"ann.lee": "hers", "bob": "his", "": "open"} {
		// A byte at a time, as slow connections give them.
		if stored, err := b.PutUpload(t.Context(), person, hash, iotest.OneByteReader(strings.NewReader("0123456789"))); err != nil || !stored {
			t.Fatalf("%s: %v, %v", person, stored, err)
		}
	}
	for _, c := range []struct {
		person, hash string
		has, gets    bool
	}{
		{"ann.lee", "hers", true, true},
		{"bob", "hers", false, false},
		{"ann", "hers", false, false},
		{"", "hers", false, false},
		{"no name\n", "hers", false, false},
		{"bob", "open", false, true},
		{"", "open", true, true},
		{"no name\n", "open", false, true},
	} {
		has, err := b.HasUpload(t.Context(), c.person, c.hash)
		if err != nil || has != c.has {
			t.Errorf("%q has %s: %v, %v", c.person, c.hash, has, err)
		}
		err = b.GetUpload(t.Context(), c.person, c.hash, func(io.Reader) error { return nil })
		if (err == nil) != c.gets || err != nil && !errors.Is(err, bus.ErrNotFound) {
			t.Errorf("%q gets %s: %v", c.person, c.hash, err)
		}
	}
	if size, err := b.UploadedBy(t.Context(), "ann.lee"); err != nil || size != 10 {
		t.Errorf("%d bytes, %v", size, err)
	}
	broken := iotest.DataErrReader(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	if _, err := b.PutUpload(t.Context(), "ann.lee", "broken", broken); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half an upload: %v", err)
	}
	if has, err := b.HasUpload(t.Context(), "ann.lee", "broken"); has || err != nil {
		t.Errorf("half an upload is stored: %v, %v", has, err)
	}
	if deleted, err := b.SweepUploads(t.Context(), time.Now().Add(2*bus.UploadKept), func(hash string) (bool, error) { return hash == "hers", nil }); err != nil || deleted != 2 {
		t.Errorf("deleted %d, %v", deleted, err)
	}
}

// The sender of an upload is killed in the middle, so nothing takes back the chunk that it has stored.
func TestHalfAnUploadGoesOnceItsTimeIsOver(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t)
	b := bustest.Connect(t, server, "test")
	whole := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	if _, err := b.PutUpload(t.Context(), "ann", "whole", bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.Publish(t.Context(), "$O.uploads.C.left", whole[:1<<20])
	}
	if err != nil {
		t.Fatal(err)
	}
	keep := func(string) (bool, error) { return true, nil }
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 0}, {3 * bus.TransferTime, 1}, {4 * bus.TransferTime, 0}} {
		if deleted, err := b.SweepUploads(t.Context(), time.Now().Add(c.after), keep); err != nil || deleted != c.want {
			t.Errorf("after %s: deleted %d, %v, want %d", c.after, deleted, err, c.want)
		}
	}
	err = b.GetUpload(t.Context(), "ann", "whole", func(r io.Reader) error {
		got, err := io.ReadAll(r)
		if err == nil && !bytes.Equal(got, whole) {
			t.Errorf("%d bytes are left of the whole upload", len(got))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
