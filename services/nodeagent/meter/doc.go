// Package meter reads what the node's components spend and which attempts used them, interval by interval. It does not decide who pays.
//
// Sources, the best that is there for each component: NVML's energy counter or its power (GPU), RAPL (CPU and memory), else a model of the CPU:
//
//	P = idle watts + busy cores x watts per core
//
// whose two constants are assumptions of the operator and are marked as such (method "modelled").
package meter
