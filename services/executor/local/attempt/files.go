package attempt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/switchyard-dl/switchyard/libs/installation"
)

// writeJSON writes a value as JSON by one of the functions of libs/installation.
func writeJSON(path string, value any, write func(path string, data []byte) error) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return write(path, append(data, '\n'))
}

// errTorn says that a file is not whole. No process leaves such a file: it was replaced without a sync before the
// machine failed.
var errTorn = errors.New("is not whole")

// readJSON reads a file; found is false if the file does not exist.
func readJSON[T any](path string) (value T, found bool, err error) {
	data, err := readOwn(path)
	if errors.Is(err, fs.ErrNotExist) {
		return value, false, nil
	}
	if err != nil {
		return value, false, fmt.Errorf("read %s: %w", path, err)
	}
	if err := json.Unmarshal(data, &value); err != nil {
		return value, false, fmt.Errorf("%s %w: %w", path, errTorn, err)
	}
	return value, true, nil
}

// mostJSON bounds a file that is read: the largest is a launch of a gang.
const mostJSON = 32 << 20

// readOwn reads a file of an attempt's folder, which a job may have put there itself.
func readOwn(path string) ([]byte, error) {
	f, err := installation.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, mostJSON))
}

// readWhole is readJSON for files that are replaced without a sync: a file that is not whole counts as absent.
func readWhole[T any](path string) (value T, found bool, err error) {
	value, found, err = readJSON[T](path)
	if errors.Is(err, errTorn) {
		var none T
		return none, false, nil
	}
	return value, found, err
}
