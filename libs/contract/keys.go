package contract

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// RatesKey is the one key of Rates.
const RatesKey = "site"

// UsageKey is the one key of Usages.
const UsageKey = "site"

// ProfilesKey is the key of the cluster's own ground truth in Profiles.
const ProfilesKey = "site"

// AccountPrefix begins the keys of Accounts.
const AccountPrefix = "job."

// AccountKey is the key of a job in Accounts.
func AccountKey(job train.JobID) string { return AccountPrefix + string(job) }

// EnergyProgressKey is the key of a job in EnergyProgress.
func EnergyProgressKey(job train.JobID) string { return "course." + string(job) }

// ClosingKey is the only key in Closings.
const ClosingKey = "closing"

// BookKey is the key of a node in Books.
func BookKey(node train.NodeID) string { return "node." + string(node) }

// SpendingKey is the key in Spendings of the tenant whose name has a key.
func SpendingKey(tenant string) string { return "tenant." + tenant }

// SeriesNodeKey is the key of a node in SeriesNodes.
func SeriesNodeKey(node train.NodeID) string { return "series." + string(node) }

// SeriesJobKey is the key of a job in SeriesJobs.
func SeriesJobKey(job train.JobID) string { return "series-job." + string(job) }

// ReportKey is the key of an attempt in Reports.
func ReportKey(job train.JobID, attempt int) string { return fmt.Sprintf("%s.%d", job, attempt) }

// The parts of a key in Hours. Month, day and hour are tokens of their own, so that a range of hours can be listed by a
// pattern.
const (
	MonthForm = "2006-01"
	DayForm   = MonthForm + ".02"
	HourForm  = DayForm + ".15"
	// MinuteForm is the form of the same in Minutes.
	MinuteForm = HourForm + ".04"
)

// HourKey is the key in Hours of the hour that contains a moment.
func HourKey(node train.NodeID, at time.Time) string {
	return string(node) + "." + at.UTC().Format(HourForm)
}

// MinuteKey is the key in Minutes of the minute that contains a moment.
func MinuteKey(node train.NodeID, at time.Time) string {
	return string(node) + "." + at.UTC().Format(MinuteForm)
}

// MinutePattern matches the keys in Minutes of all nodes in the minute that contains a moment.
func MinutePattern(at time.Time) string { return MinuteKey("*", at) }

// GroupKey is the key in Groups of the group that a recurring job belongs to. A tenant's name may contain what a key
// must not.
func GroupKey(s train.Spec) string { return fmt.Sprintf("t%x.%s", s.Tenant, s.Energy.Group) }

// SplitGroupKey is the inverse of GroupKey; ok is false for another key.
func SplitGroupKey(key string) (tenant, group string, ok bool) {
	word, group, found := strings.Cut(key, ".")
	word, marked := strings.CutPrefix(word, "t")
	name, err := hex.DecodeString(word)
	return string(name), group, found && marked && err == nil
}

// HourPatterns returns patterns that match the keys of all hours in [from, to), and also the rest of the first day and
// the last: whole months, and days before and after them.
func HourPatterns(from, to time.Time) []string {
	const day = 24 * time.Hour
	const most = 100 // for a range that begins long before the ledger
	var patterns []string
	for at := from.UTC().Truncate(day); at.Before(to); {
		next, pattern := at.AddDate(0, 0, 1), "*."+at.Format(DayForm)+".*"
		if month := at.AddDate(0, 1, 0); at.Day() == 1 && !month.After(to) {
			next, pattern = month, "*."+at.Format(MonthForm)+".*.*"
		}
		if patterns = append(patterns, pattern); len(patterns) > most {
			return []string{">"}
		}
		at = next
	}
	return patterns
}

// TrialJob returns the id of the job of a trial.
func TrialJob(experiment string, trial int) train.JobID {
	return train.JobID(fmt.Sprintf("%s-t%d", experiment, trial))
}

// SplitTrialJob is the inverse of TrialJob; ok is false for the id of another job.
func SplitTrialJob(job string) (experiment string, trial int, ok bool) {
	i := strings.LastIndex(job, "-t")
	if i <= 0 {
		return "", 0, false
	}
	trial, err := strconv.Atoi(job[i+2:])
	return job[:i], trial, err == nil && trial >= 0 && string(TrialJob(job[:i], trial)) == job
}

// Trials is the part of an experiment's record that says which jobs are its trials.
type Trials struct {
	ID     string       `json:"id"`
	Trials []TrialOfJob `json:"trials"`
}

// TrialOfJob is the part of a trial that names its job.
type TrialOfJob struct {
	Job     train.JobID `json:"job"`
	Foreign bool        `json:"foreign"`
}

// ExperimentOf returns the experiment whose trial a job is. record reads what an experiment's record says of its
// trials; nil if there is no such experiment.
func ExperimentOf(job train.JobID, record func(experiment string) *Trials) (experiment string, is bool) {
	experiment, _, named := SplitTrialJob(string(job))
	if !named {
		return "", false
	}
	r := record(experiment)
	return experiment, r != nil && slices.Contains(r.Trials, TrialOfJob{Job: job})
}
