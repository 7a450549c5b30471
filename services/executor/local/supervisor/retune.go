package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/launcher"
)

// retune gives the processes as many of their processors as the launcher has written down.
func (s *supervisor) retune() error {
	layout := installation.Layout{DataDir: filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(s.folder.Path)))), People: true}
	text, err := os.ReadFile(launcher.CoresFile(layout, s.launch.Job))
	if err != nil {
		return fmt.Errorf("retune: %w", err)
	}
	cores, err := strconv.Atoi(string(text))
	if err != nil {
		return fmt.Errorf("retune: %w", err)
	}
	tuned := attempt.Tuned{Cores: cores, Refused: s.launch.Lacks(cores), Restarts: s.launch.Runtime != engine.None}
	if !tuned.Restarts {
		err = s.launch.KeepOn(os.Getpid(), cores)
	}
	return errors.Join(err, s.folder.Tune(tuned))
}
