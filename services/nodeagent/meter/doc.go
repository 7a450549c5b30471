// Package meter reads the energy that the node's components use and which attempts used them, interval by interval.
// It does not decide who pays.
//
// GPUs are read through gpu.Reader, everything else through Source. For each component the first source that reports
// it wins. If none reports the processors, a model does:
//
//	P = idle watts + busy cores x watts per core
//
// Its two constants are assumptions of the operator, and its results are marked as such (method "modelled").
package meter
