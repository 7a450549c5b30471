//go:build !linux

package doctor

import "github.com/switchyard-dl/switchyard/libs/unit"

// mayMount is no capability: there are none outside Linux.
const mayMount = 0

func surveyMemory() unit.Bytes { return 0 }

func surveyPerf(s *survey) { s.PerfTrouble = "performance events are counted on Linux only" }

func surveyQuotas(string) (jobs, trouble string) { return "", "" }
