// Package contract declares what services share through key-value buckets: the name of each bucket, the form of its
// keys, the Go type of its records, the one service that writes them and the services that read them. docs/records.md
// and the JSON Schemas in docs/schemas are generated from it.
//
// It holds data and decides nothing. What follows from a record is computed in the core of the service that owns it.
// Records whose type a fact carries too, such as train.Job, are declared in libs/train.
package contract

import (
	"reflect"
	"time"
)

// Bucket names a key-value bucket, or the part of one under a key prefix, whose values are records of type T.
type Bucket[T any] string

// MaxBucketBytes is the largest size of a bucket. The server of the bus reserves it, as it does with the bytes of
// streams.
const MaxBucketBytes = int64(1) << 30

// Uploads is the object store that holds the folders of submissions, each under the hash of its content, and
// MaxUploadsBytes its largest size. Web writes what a person uploads, up to MaxUploadsOfPerson; the owner of the
// installation writes himself. Admission deletes folders that no job needs.
const (
	Uploads            = "uploads"
	MaxUploadsBytes    = int64(4) << 30
	MaxUploadsOfPerson = MaxUploadsBytes / 4
)

// BucketInfo describes a bucket.
type BucketInfo struct {
	Name    string
	Doc     string
	Records []Record
	// Keep is how long a value stays after it was last written; 0 means for good.
	Keep time.Duration
	// Made says what the bucket is made from again if it is lost, and Loss what that does not bring back.
	Made Made
	Loss string
}

// Made is what a bucket is made from if it is lost.
type Made string

// The ways to make a bucket again.
const (
	// Folded: its writer folds the facts of a stream. Until it has done so, nobody acts on the bucket.
	Folded Made = "folded from a stream"
	// Observed: its writer observes or decides it again.
	Observed Made = "observed again"
	// Restored: it holds what was learned or decided once, and comes back from a snapshot alone.
	Restored Made = "restored from a snapshot"
)

// Record describes one type of record in a bucket.
type Record struct {
	// Constant is the name of the Bucket constant that opens it.
	Constant string
	// Key is the form of its keys, with placeholders in <>.
	Key  string
	Type reflect.Type
	// Writer is the one service that writes these keys. It changes them by compare-and-swap.
	Writer string
	// Readers are the services that read them, besides the writer. Command line and tests may read every record.
	Readers []string
	Doc     string
}

// record describes the records of type T.
func record[T any](_ Bucket[T], constant, key, writer, doc string, readers ...string) Record {
	return Record{Constant: constant, Key: key, Type: reflect.TypeFor[T](), Writer: writer, Readers: readers, Doc: doc}
}
