package upload_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/upload"
)

// write makes a folder: a name that ends in / is a folder, a text that begins with -> a link.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		target, link := strings.CutPrefix(text, "->")
		err := error(nil)
		switch {
		case link:
			err = os.Symlink(target, full)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(full, 0o755)
		default:
			err = os.WriteFile(full, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func pack(t *testing.T, dir string) (string, []byte) {
	t.Helper()
	var archive bytes.Buffer
	hash, err := upload.Pack(dir, upload.Standard(), &archive)
	if err != nil {
		t.Fatal(err)
	}
	return hash, archive.Bytes()
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != dir {
			name, _ := filepath.Rel(dir, path)
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAFolderArrivesAsItIs(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"train.py": "print(1)", "lib/a.py": "a", "empty/": "", "latest.py": "->train.py", "lib/up.py": "->../train.py", ".git/config": "x",
		"__pycache__/a.pyc": "x", "lib/__pycache__/b.pyc": "x", "data/big.bin": "x", "data/small.txt": "y", "out/a.log": "x", "keep.log": "y", "sub/out/b": "z",
		upload.IgnoreFile: "# what the job does not need\n*.log\n!keep.log\n/out/\ndata/*.bin\n",
	})
	if err := os.Chmod(filepath.Join(dir, "train.py"), 0o755); err != nil {
		t.Fatal(err)
	}
	hash, archive := pack(t, dir)
	there := t.TempDir()
	if err := upload.Unpack(bytes.NewReader(archive), hash, upload.Standard(), there); err != nil {
		t.Fatal(err)
	}
	want := []string{
		upload.IgnoreFile, "data", "data/small.txt", "empty", "keep.log", "latest.py", "lib", "lib/a.py", "lib/up.py", "sub", "sub/out", "sub/out/b", "train.py",
	}
	if diff := cmp.Diff(want, names(t, there)); diff != "" {
		t.Error(diff)
	}
	text, err := os.ReadFile(filepath.Join(there, "lib/up.py"))
	if err != nil || string(text) != "print(1)" {
		t.Errorf("through a link: %q, %v", text, err)
	}
	if info, err := os.Stat(filepath.Join(there, "train.py")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// Equal folders have one hash, wherever and whenever they were made.
func TestTheHashIsOfTheContent(t *testing.T) {
	t.Parallel()
	files := map[string]string{"train.py": "print(1)", "lib/a.py": "a"}
	one, _ := pack(t, write(t, files))
	two, _ := pack(t, write(t, files))
	files["lib/a.py"] = "b"
	other, _ := pack(t, write(t, files))
	if one != two || one == other || !train.IsUpload(one) {
		t.Errorf("hashes %s, %s and of another content %s", one, two, other)
	}
}

func TestWhatCannotBePacked(t *testing.T) {
	t.Parallel()
	small := upload.Limits{Bytes: 1 << 20, Files: 3}
	cases := map[string]struct {
		files map[string]string
		want  string
	}{
		"too large":     {map[string]string{"a.py": "x", "data/b": strings.Repeat("x", 3<<20)}, "has 3 MiB, more than the 1 MiB of an upload; data alone has 3 MiB: name in .switchyardignore"},
		"too many":      {map[string]string{"a": "", "b": "", "c": "", "d": ""}, "has 4 files, more than the 3 of an upload"},
		"outward link":  {map[string]string{"data": "->/data"}, "the link data leads to /data, out of the folder: name it in .switchyardignore"},
		"sideward link": {map[string]string{"lib/data": "->../../x"}, "the link lib/data leads to ../../x, out of"},
		"bad pattern":   {map[string]string{upload.IgnoreFile: "ok\n[z-a]\n"}, `.switchyardignore: line 2: "[z-a]" is no pattern`},
	}
	for name, tc := range cases {
		if _, err := upload.Pack(write(t, tc.files), small, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func archive(t *testing.T, headers ...tar.Header) (string, []byte) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:]), b.Bytes()
}

// An archive of anybody's making writes nothing outside of its folder, and no more than the limits.
func TestHostileArchivesAreRefused(t *testing.T) {
	t.Parallel()
	file := func(name string, size int64) tar.Header { return tar.Header{Name: name, Mode: 0o644, Size: size} }
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}
	}
	limits := upload.Limits{Bytes: 1000, Files: 3}
	for name, headers := range map[string][]tar.Header{
		"absolute":        {file("/tmp/x", 1)},
		"upwards":         {file("../x", 1)},
		"hidden upwards":  {file("a/../../x", 1)},
		"outward link":    {link("l", "/etc")},
		"upward link":     {link("a/l", "../../x")},
		"hard link":       {{Name: "h", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}},
		"device":          {{Name: "d", Typeflag: tar.TypeChar}},
		"large":           {file("a", 600), file("b", 600)},
		"many":            {file("a", 0), file("b", 0), file("c", 0), file("d", 0)},
		"two of one name": {file("a", 1), file("a", 1)},
	} {
		hash, data := archive(t, headers...)
		parent := t.TempDir()
		dir := filepath.Join(parent, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := upload.Unpack(bytes.NewReader(data), hash, limits, dir); err == nil || name != "two of one name" && !errors.Is(err, upload.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
		if out := slices.DeleteFunc(names(t, parent), func(n string) bool { return n == "in" || strings.HasPrefix(n, "in/") }); len(out) > 0 {
			t.Errorf("%s: %v outside", name, out)
		}
	}
	_, data := archive(t, file("a", 1))
	if err := upload.Unpack(bytes.NewReader(data), strings.Repeat("0", 64), limits, t.TempDir()); !errors.Is(err, upload.ErrRefused) {
		t.Errorf("another hash: %v", err)
	}
}

// Whatever bytes arrive, unpacking ends, and writes nothing outside of the folder.
func FuzzUnpack(f *testing.F) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Name: "a/../../x", Linkname: "..", Typeflag: tar.TypeSymlink})
	_ = w.Close()
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = upload.Unpack(bytes.NewReader(data), "", upload.Limits{Bytes: 1 << 16, Files: 10}, dir)
		if out, _ := os.ReadDir(parent); len(out) != 1 {
			t.Errorf("%v outside", out)
		}
	})
}
