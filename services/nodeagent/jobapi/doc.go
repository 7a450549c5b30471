// Package jobapi is the HTTP interface through which training code reports progress and asks whether to stop. It is
// wire-compatible with KubeProfiler, at the root and below /attempt/<token>/, and has a richer set of requests below
// v1/jobs/.
//
// It decides whether a request is well-formed, which attempt sent it, and whether that attempt is still the newest
// one; what a fact means for the job is decided elsewhere. A 200 for the end of an epoch or a checkpoint is a
// guarantee: the fact is stored on the bus, or in the outbox on disk.
package jobapi
