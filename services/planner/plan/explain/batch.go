package explain

import (
	"fmt"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// The codes of reasons for a batch.
const (
	BatchNoiseUnknown = "NoiseUnknown"
	BatchMostProgress = "MostProgress"
	BatchTried        = "LargerBatchTried"
	BatchAtMost       = "AtMaxBatch"
	BatchAtLeast      = "AtLeastBatch"
)

// batchChoice says why a gang got its batch; nil if the policy did not choose it.
func batchChoice(g *cluster.Gang) *train.BatchChoice {
	n := g.Notes.Batch
	if n == nil {
		return nil
	}
	return &train.BatchChoice{Reason: batchReason(g, n), Options: n.Options}
}

func batchReason(g *cluster.Gang, n *cluster.BatchNotes) train.Reason {
	spec := &g.Spec
	switch {
	case n.NoiseUnknown:
		return train.Reason{
			Code: BatchNoiseUnknown, Message: "the least that keeps its devices busy: what larger steps would gain is not known before the gradient noise is measured",
			Hint: "the training code measures it with job.watch(model), or reports grad_sqr and grad_var",
		}
	case n.AtMost && !n.AtLeast:
		return train.Reason{Code: BatchAtMost, Message: fmt.Sprintf("the most that adaptive_batch.max %d allows%s", spec.AdaptiveBatch.Max, compared(n))}
	case n.Tried:
		return train.Reason{Code: BatchTried, Message: "larger than what has run: its step may take less time than predicted, and trying it costs no restart" + compared(n)}
	case n.AtLeast:
		return train.Reason{Code: BatchAtLeast, Message: fmt.Sprintf("the least that its base batch %d and %s allow%s", spec.BaseBatch(), cluster.Devices(g.Got.Size()), compared(n))}
	}
	return train.Reason{Code: BatchMostProgress, Message: "predicted to make the most progress per second" + compared(n)}
}

// compared says how much less progress the neighbours of the chosen batch are predicted to make.
func compared(n *cluster.BatchNotes) string {
	chosen := train.BatchOption{}
	for _, o := range n.Options {
		if o.Chosen {
			chosen = o
		}
	}
	if chosen.Goodput <= 0 {
		return ""
	}
	var words []string
	for _, o := range n.Options {
		if o.Chosen {
			continue
		}
		percent, word := 100*(o.Goodput/chosen.Goodput-1), "more"
		if percent < 0 {
			percent, word = -percent, "less"
		}
		words = append(words, fmt.Sprintf("steps of %d would make %.1f %% %s", o.GlobalBatch, percent, word))
	}
	if len(words) == 0 {
		return ""
	}
	return "; " + strings.Join(words, ", ")
}
