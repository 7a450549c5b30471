// Package nvml reads NVIDIA GPUs through NVML. It is the only package that knows NVML. A machine without the library,
// or a build without cgo, has no GPUs.
package nvml
