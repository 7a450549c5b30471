package event

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// encodingGzip is the value of HeaderEncoding for a packed body.
const encodingGzip = "gzip"

// Pack returns a body in its stored form, with its encoding for HeaderEncoding. Bodies up to MaxBodyBytes stay plain
// JSON, for people and other programs to read.
func Pack(body []byte) (stored []byte, encoding string, err error) {
	if len(body) <= MaxBodyBytes {
		return body, "", nil
	}
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err == nil {
		_, err = zip.Write(body)
		err = errors.Join(err, zip.Close())
	}
	if err != nil {
		return nil, "", fmt.Errorf("pack %d bytes: %w", len(body), err)
	}
	if packed.Len() > MaxStoredBytes {
		return nil, "", fmt.Errorf("pack %d bytes: %w: %d bytes, at most %d", len(body), ErrTooLarge, packed.Len(), MaxStoredBytes)
	}
	return packed.Bytes(), encodingGzip, nil
}

// MostBytes returns the size of the largest body on a subject. Only plans may be larger than MaxBodyBytes.
func MostBytes(s Subject) int {
	if s.Entity == PlanSubject().Entity {
		return MaxPlanBytes
	}
	return MaxBodyBytes
}

// Unpack returns the argument of Pack. Any publisher can send anything, so it unpacks no more than a number of bytes: a
// few kilobytes would hold up their reader for long otherwise.
func Unpack(stored []byte, encoding string, most int) ([]byte, error) {
	switch encoding {
	case "":
		return stored, nil
	case encodingGzip:
	default:
		return nil, fmt.Errorf("unpack %d bytes: encoding %.80q: %w", len(stored), encoding, errors.ErrUnsupported)
	}
	unzip, err := gzip.NewReader(bytes.NewReader(stored))
	if err != nil {
		return nil, fmt.Errorf("unpack %d bytes: %w", len(stored), err)
	}
	body, err := io.ReadAll(io.LimitReader(unzip, int64(most)+1))
	if err == nil && len(body) > most {
		err = fmt.Errorf("%w: at most %d are read", ErrTooLarge, most)
	}
	if err != nil {
		return nil, fmt.Errorf("unpack %d bytes: %w", len(stored), err)
	}
	return body, nil
}
