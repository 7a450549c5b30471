package history

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
)

// bundleVersion is the version of the layout of a bundle: a tar.gz of JSON files.
const bundleVersion = 1

// The files of a bundle; those of decisions are named by their generations.
const (
	manifestFile = "manifest.json"
	nodesFile    = "nodes.json"
	modelsFile   = "models.json"
	factsFile    = "facts.jsonl"
	plansFile    = "plans.jsonl"
	decisionsDir = "decisions"
)

// A bundle may come from anybody. It unpacks to at most spareBytes and mostRatio times the bytes that were read of it:
// real ones, which are JSON, to about 20 times. mostNodes bounds what takes much more memory than text.
const (
	spareBytes = 64 << 20
	mostRatio  = 100
	mostNodes  = 100_000
)

var (
	errBomb  = fmt.Errorf("it unpacks to more than %d times its size, so it was not written by `switchyard bundle`", mostRatio)
	errEmpty = errors.New("an entry has no name")
	errMany  = fmt.Errorf("it has more than %d nodes or models", mostNodes)
)

// bounded counts what is read of a bundle and what that unpacks to.
type bounded struct {
	packed   io.Reader
	unpacked io.Reader
	read     int64
	made     int64
}

// Read reads unpacked bytes.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.unpacked.Read(p)
	if b.made += int64(n); b.made > spareBytes+mostRatio*b.read {
		return 0, errBomb
	}
	return n, err
}

// source reads the packed bytes.
type source struct{ *bounded }

func (s source) Read(p []byte) (int, error) {
	n, err := s.packed.Read(p)
	s.read += int64(n)
	return n, err
}

// Writer writes a bundle, secrets taken out if wanted. After an error it writes nothing more.
type Writer struct {
	zip    *gzip.Writer
	tar    *tar.Writer
	header Manifest
	err    error
}

// NewWriter begins a bundle with all of a history but its inputs.
func NewWriter(w io.Writer, h History, redact bool) (*Writer, error) {
	h.Redacted = h.Redacted || redact
	zip := gzip.NewWriter(w)
	b := &Writer{zip: zip, tar: tar.NewWriter(zip), header: h.Manifest}
	if h.Redacted {
		h = redacted(h)
	}
	write(b, manifestFile, h.Manifest)
	write(b, nodesFile, h.Nodes)
	write(b, modelsFile, h.Models)
	write(b, factsFile, h.Facts...)
	write(b, plansFile, h.Plans...)
	return b, b.err
}

// redacted is the history without secrets. Facts are kept as what this program knows of them: a key that it does
// not know may be anything.
func redacted(h History) History {
	facts := make([]Fact, 0, len(h.Facts))
	for _, f := range h.Facts {
		_, _, body, ok := f.parsed()
		if !ok {
			continue
		}
		redactFact(body)
		if data, err := json.Marshal(body); err == nil {
			f.Body = data
			facts = append(facts, f)
		}
	}
	h.Facts, h.Nodes = facts, redactNodes(h.Nodes)
	return h
}

// Input adds what a plan was decided on.
func (w *Writer) Input(in decision.Input) error {
	if w.header.Redacted {
		in = redactInput(in)
	}
	write(w, fmt.Sprintf("%s/%d.json", decisionsDir, in.Generation), in)
	return w.err
}

// Close ends the bundle.
func (w *Writer) Close() error { return errors.Join(w.tar.Close(), w.zip.Close()) }

// write adds a file with a line for each of some values.
func write[T any](w *Writer, name string, values ...T) {
	var data bytes.Buffer
	encode := json.NewEncoder(&data)
	for i := 0; i < len(values) && w.err == nil; i++ {
		if err := encode.Encode(values[i]); err != nil {
			w.err = fmt.Errorf("encode %s: %w", name, err)
		}
	}
	if w.err != nil {
		return
	}
	h := &tar.Header{Name: name, Mode: 0o644, Size: int64(data.Len()), ModTime: w.header.MadeAt, Format: tar.FormatPAX}
	err := w.tar.WriteHeader(h)
	if err == nil {
		_, err = w.tar.Write(data.Bytes())
	}
	if err != nil {
		w.err = fmt.Errorf("write %s: %w", name, err)
	}
}

// ReadBundle reads a bundle with the input of a generation, or the newest one for 0. Other inputs that cannot be
// read are passed over.
func ReadBundle(r io.Reader, generation uint64) (History, error) {
	var h History
	bound := &bounded{packed: r}
	zip, err := gzip.NewReader(bufio.NewReader(source{bound}))
	if err != nil {
		return h, fmt.Errorf("open bundle: %w", err)
	}
	bound.unpacked = zip
	files := tar.NewReader(bound)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return h, fmt.Errorf("read bundle: %w", err)
		}
		if err := h.read(path.Clean(header.Name), files, generation); err != nil {
			return h, fmt.Errorf("read %s of the bundle: %w", header.Name, err)
		}
	}
	if h.Version < 1 || h.Version > bundleVersion {
		return h, fmt.Errorf("read bundle: it has layout %d, this program reads 1 to %d", h.Version, bundleVersion)
	}
	sortFacts(h.Facts)
	return h, nil
}

// read takes one file; what is unknown is passed over.
func (h *History) read(name string, r io.Reader, generation uint64) error {
	switch name {
	case manifestFile:
		return json.NewDecoder(r).Decode(&h.Manifest)
	case nodesFile:
		return readArray(r, &h.Nodes, func(n train.Node) bool { return n.ID != "" })
	case modelsFile:
		return readArray(r, &h.Models, func(m train.Model) bool { return m.Job != "" })
	case factsFile:
		return readLines(r, &h.Facts)
	case plansFile:
		return readLines(r, &h.Plans)
	}
	number, isInput := inputFile(name)
	if !isInput {
		return nil
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	in, err := decision.ParseInput(data)
	if err != nil && number != generation {
		h.Unreadable = append(h.Unreadable, fmt.Errorf("read %s of the bundle: %w", name, err))
		return nil
	}
	if err != nil {
		return err
	}
	h.see(in.DecidedAt, in.State.Offered())
	if (generation == 0 || number == generation) && (h.Input == nil || h.Input.Generation < number) {
		h.Input = &in
	}
	return nil
}

// inputFile is the generation of a decision's file; false for other files.
func inputFile(name string) (generation uint64, ok bool) {
	base, isJSON := strings.CutSuffix(path.Base(name), ".json")
	generation, err := strconv.ParseUint(base, 10, 64)
	return generation, err == nil && isJSON && path.Dir(name) == decisionsDir
}

func readLines(r io.Reader, facts *[]Fact) error {
	d := json.NewDecoder(r)
	for {
		var f Fact
		err := d.Decode(&f)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if f.Subject == "" {
			return errEmpty
		}
		*facts = append(*facts, f)
	}
}

// readArray reads the entries of an array one by one, so that few bytes cannot take much memory.
func readArray[T any](r io.Reader, all *[]T, named func(T) bool) error {
	d := json.NewDecoder(r)
	if begin, err := d.Token(); err != nil || begin == nil { // null is an array without entries
		return err
	}
	for d.More() {
		var one T
		if err := d.Decode(&one); err != nil {
			return err
		}
		if !named(one) {
			return errEmpty
		}
		if *all = append(*all, one); len(*all) > mostNodes {
			return errMany
		}
	}
	return nil
}

func sortFacts(facts []Fact) {
	slices.SortFunc(facts, func(x, y Fact) int { return cmp.Compare(x.Sequence, y.Sequence) })
}
