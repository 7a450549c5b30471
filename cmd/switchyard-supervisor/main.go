// Command switchyard-supervisor supervises one attempt of a job: it starts the processes, keeps their output and
// records their end. The executor starts it and describes the attempt in one file. It links neither the bus nor
// Kubernetes.
package main

import (
	"os"

	"github.com/switchyard-dl/switchyard/services/executor/local"
)

func main() { os.Exit(local.Supervise(os.Args)) }
