// Package event is the contract of the bus: the facts with their subjects, keys and bodies, the streams and the
// key-value buckets. docs/events.md, docs/asyncapi.json and docs/schemas are generated from its tables and types.
//
// A subject is `yard.<entity>.<id>.<fact>.v<N>` with the fact in the past tense. A body is JSON with units in the
// names. A submission is decoded strictly (unknown and duplicate keys refused, the near miss suggested); facts between
// services ignore unknown keys.
package event
