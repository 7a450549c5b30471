package web

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"testing"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/upload"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

// packed is the archive of a small folder, and its hash.
func packed(t *testing.T) (archive []byte, hash string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), bytes.Repeat([]byte("x"), 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	hash, err := upload.Pack(dir, upload.Standard(), &b)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), hash
}

// A person uploads a folder without a key of the bus. It is his alone, and has the hash that he says.
func TestAPersonUploadsAFolder(t *testing.T) {
	b := sharedBench(t)
	users, err := bus.OpenKV(b.ctx, b.bus, contract.Users)
	if err != nil {
		t.Fatal(err)
	}
	if err := users.Put(b.ctx, userOf(alienUID), access.Person{Name: userOf(alienUID), Role: access.Viewer}); err != nil {
		t.Fatal(err)
	}
	b.serve()
	archive, hash := packed(t)
	other := sha256.Sum256(nil)
	send := func(uid int, hash string) (status int, repeat bool) {
		t.Helper()
		b.client = connectedAs(t, uid, b.config.SharedSocket)
		r := b.send("PUT", "/api/v1/uploads/"+hash, string(archive))
		defer r.Body.Close()
		var done api.Uploaded
		if err := json.NewDecoder(r.Body).Decode(&done); err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, done.Repeat
	}
	for _, c := range []struct {
		name   string
		uid    int
		hash   string
		status int
		repeat bool
	}{
		{"a folder", askerUID, hash, http.StatusOK, false},
		{"again", askerUID, hash, http.StatusOK, true},
		{"the same of another person", mateUID, hash, http.StatusOK, false},
		{"another hash", askerUID, hex.EncodeToString(other[:]), http.StatusUnprocessableEntity, false},
		{"no hash", askerUID, "x", http.StatusBadRequest, false},
		{"who may not submit", alienUID, hash, http.StatusForbidden, false},
	} {
		if status, repeat := send(c.uid, c.hash); status != c.status || repeat != c.repeat {
			t.Errorf("%s: %d, repeated %v, want %d, %v", c.name, status, repeat, c.status, c.repeat)
		}
	}
	for person, has := range map[string]bool{userOf(askerUID): true, userOf(mateUID): true, userOf(alienUID): false, "": false} {
		if got, err := b.bus.HasUpload(b.ctx, person, hash); err != nil || got != has {
			t.Errorf("%q has it: %v, %v", person, got, err)
		}
	}
	if size, err := b.bus.UploadedBy(b.ctx, userOf(askerUID)); err != nil || size != int64(len(archive)) {
		t.Errorf("%d bytes, %v, want %d: what was refused is not kept", size, err, len(archive))
	}
	err = b.bus.GetUpload(b.ctx, userOf(askerUID), hash, func(r io.Reader) error {
		_, err := tar.NewReader(r).Next()
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A person sends one folder at a time, so that what he has is known before he sends another.
func TestAPersonUploadsOneFolderAtATime(t *testing.T) {
	b := sharedBench(t)
	b.serve()
	archive, hash := packed(t)
	b.client = connectedAs(t, askerUID, b.config.SharedSocket)
	from, to := io.Pipe()
	begun := make(chan struct{}) // once the service asks for the body
	ctx := httptrace.WithClientTrace(b.ctx, &httptrace.ClientTrace{Got100Continue: func() { close(begun) }})
	var first conc.WaitGroup
	first.Go(func() {
		request, err := http.NewRequestWithContext(ctx, "PUT", "http://switchyard/api/v1/uploads/"+hash, from)
		if err != nil {
			t.Error(err)
			return
		}
		request.Header.Set("Expect", "100-continue")
		r, err := b.client.Do(request)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("the first: %v, %v", r, err)
			return
		}
		r.Body.Close()
	})
	if _, err := to.Write(archive[:1]); err != nil {
		t.Fatal(err)
	}
	<-begun
	r := b.send("PUT", "/api/v1/uploads/"+hash, string(archive))
	r.Body.Close()
	if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") != "1" {
		t.Errorf("the second: %s", r.Status)
	}
	if _, err := to.Write(archive[1:]); err != nil {
		t.Fatal(err)
	}
	to.Close()
	first.Wait()
}

func TestThePartOfAPersonInTheStoreOfUploads(t *testing.T) {
	most := upload.Standard().Archive()
	for has, want := range map[int64]int64{0: most, contract.MaxUploadsOfPerson - 10: 10, contract.MaxUploadsOfPerson: 0, 2 * contract.MaxUploadsOfPerson: 0} {
		if got := roomBeside(has); got != want {
			t.Errorf("beside %d bytes: %d, want %d", has, got, want)
		}
	}
}
