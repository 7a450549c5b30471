package train

import "testing"

// TestWhatTheMachineIsToBlameFor: only such losses count against a node.
func TestWhatTheMachineIsToBlameFor(t *testing.T) {
	reason := func(code string) Exit { return Exit{Lost: true, Reason: Reason{Code: code}} }
	for name, test := range map[string]struct {
		exit Exit
		want bool
	}{
		"vanished":              {Exit{Lost: true}, true},
		"node silent":           {reason("NodeLost"), true},
		"kubelet refuses":       {reason("NodeRefused"), true},
		"killed":                {Exit{Signal: "SIGKILL"}, true},
		"disk full":             {Exit{Code: 1, LogTail: "OSError: [Errno 28] No space left on device"}, true},
		"GPU broken":            {Exit{Code: 1, LogTail: "RuntimeError: CUDA error: uncorrectable ECC error encountered"}, true},
		"failed":                {Exit{Code: 1}, false},
		"crashed":               {Exit{Signal: "SIGSEGV"}, false},
		"out of its own memory": {Exit{Signal: "SIGKILL", Reason: Reason{Code: "OutOfMemory"}}, false},
		"ended by us":           {Exit{Signal: "SIGKILL", Forced: true}, false},
		"deleted by a person":   {reason("PodDeleted"), false},
		"drained":               {reason("Evicted"), false},
		"no room":               {reason("Unschedulable"), false},
		"a folder is missing":   {reason("GangIncomplete"), false},
	} {
		if got := test.exit.Outside(); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
