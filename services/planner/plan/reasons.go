package plan

import (
	"github.com/switchyard-dl/switchyard/services/planner/plan/colocate"
	"github.com/switchyard-dl/switchyard/services/planner/plan/explain"
	"github.com/switchyard-dl/switchyard/services/planner/plan/feasible"
	"github.com/switchyard-dl/switchyard/services/planner/plan/queue"
)

// The codes of reasons, for programs; the words beside them may change.
const (
	ReasonPlaced               = explain.Placed
	ReasonKept                 = explain.Kept
	ReasonRestartNotWorth      = explain.RestartNotWorth
	ReasonGrewByMarginalGain   = explain.GrewByMarginalGain
	ReasonShrunkForOthers      = explain.ShrunkForOthers
	ReasonShrunkForSpeed       = explain.ShrunkForSpeed
	ReasonMoved                = explain.Moved
	ReasonSampling             = explain.Sampling
	ReasonReplacedStraggler    = explain.ReplacedStraggler
	ReasonMemoryOutgrown       = explain.MemoryOutgrown
	ReasonSizeWanted           = explain.SizeWanted
	ReasonLinkDegraded         = feasible.LinkDegraded
	ReasonNoNode               = feasible.NoNode
	ReasonDevicesTooFew        = feasible.DevicesTooFew
	ReasonNoSuchDevice         = feasible.NoSuchDevice
	ReasonMixedNode            = feasible.MixedNode
	ReasonDevicesGone          = explain.DevicesGone
	ReasonPreemptedByPriority  = explain.PreemptedByPriority
	ReasonPreemptedByShorter   = explain.PreemptedByShorter
	ReasonHeadOfLineBlocked    = explain.HeadOfLineBlocked
	ReasonLongQueue            = explain.LongQueue
	ReasonWaitingForDevices    = explain.WaitingForDevices
	ReasonWaitingForServer     = explain.WaitingForServer
	ReasonWaitingForMainMemory = explain.WaitingForMainMemory
	ReasonDevicesKept          = explain.DevicesKept
	ReasonWaitingForMemory     = colocate.WaitingForMemory
	ReasonSlowTogether         = colocate.SlowTogether
	ReasonQuotaReached         = explain.QuotaReached
	ReasonPowerBudgetReached   = explain.PowerBudgetReached
	ReasonPostponed            = queue.Postponed
	ReasonEnergyQuotaReached   = queue.EnergyQuotaReached
	ReasonBatchNoiseUnknown    = explain.BatchNoiseUnknown
	ReasonBatchMostProgress    = explain.BatchMostProgress
	ReasonBatchTried           = explain.BatchTried
	ReasonBatchAtMost          = explain.BatchAtMost
	ReasonBatchAtLeast         = explain.BatchAtLeast
)
