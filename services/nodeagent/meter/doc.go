// Package meter reads what the node's components spend and which attempts used them, interval by interval. It does not decide who pays.
//
// GPUs are read through gpu.Reader, everything else through Source; of each component the first source that tells it is believed. Where none tells of the
// processors, a model does:
//
//	P = idle watts + busy cores x watts per core
//
// whose two constants are assumptions of the operator and are marked as such (method "modelled").
package meter
