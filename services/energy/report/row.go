package report

import (
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

// Row is one line. The energies are exact; a pointer is nil if the value is unknown.
type Row struct {
	Key string `json:"key"`
	// For a job: its name, user and state.
	Name  string      `json:"name,omitempty"`
	User  string      `json:"user,omitempty"`
	State train.State `json:"state,omitempty"`
	Jobs  int         `json:"jobs"`
	// Energy is the total of the row: Active of jobs, Idle, Unattributed. For a job, Idle is the charge for devices
	// that it held. Waste is the part of the jobs' energy whose work was lost.
	Energy       unit.Energy            `json:"energy_uj"`
	Active       unit.Energy            `json:"active_uj"`
	Idle         unit.Energy            `json:"idle_uj"`
	Unattributed unit.Energy            `json:"unattributed_uj"`
	Waste        unit.Energy            `json:"waste_uj"`
	Components   map[string]unit.Energy `json:"components_uj"`
	KWh          float64                `json:"kwh"`
	// FacilityKWh, Cost and CO2eGrams include the facility's share.
	FacilityKWh float64  `json:"facility_kwh"`
	Cost        *float64 `json:"cost,omitempty"`
	CO2eGrams   *float64 `json:"co2e_g,omitempty"`
	// EstimatedRatio is the part of the energy with a known intensity that its source had estimated; PricedRatio and
	// IntensityRatio are the parts of Energy with a price and with an intensity.
	EstimatedRatio  float64  `json:"co2e_estimated_ratio"`
	PricedRatio     float64  `json:"priced_ratio"`
	IntensityRatio  float64  `json:"intensity_known_ratio"`
	Seconds         float64  `json:"seconds"`
	MeanWatts       float64  `json:"mean_w"`
	PeakWatts       float64  `json:"peak_w"`
	JoulesPerEpoch  *float64 `json:"joules_per_epoch,omitempty"`
	JoulesPerSample *float64 `json:"joules_per_sample,omitempty"`
	// JoulesToTarget is the energy a job had used when it reached the target of its submission.
	JoulesToTarget *float64 `json:"joules_to_target,omitempty"`
	Methods        []string `json:"methods"`
	// CoverageRatio is the part of the time in which jobs used components that has readings, modelled ones included; 0
	// if none did.
	CoverageRatio float64 `json:"coverage_ratio"`
	Saving        *Saving `json:"saving,omitempty"`

	priced, known, estimated unit.Energy
	measured, expected       float64
	members                  map[train.JobID]bool
	owner                    contract.Owner
}

// Saving compares finished jobs with their default configuration, which took DefaultEnergy and DefaultSeconds. Ratios
// above 0 mean less energy, and more time.
type Saving struct {
	DefaultEnergy    unit.Energy `json:"default_energy_uj"`
	DefaultSeconds   float64     `json:"default_seconds"`
	EnergyRatio      float64     `json:"energy_saved_ratio"`
	TimePenaltyRatio float64     `json:"time_penalty_ratio"`

	energy  unit.Energy
	seconds float64
}

// hourPrice is the mean price of an hour.
type hourPrice struct {
	perKWh, grams *float64
	pue           float64
	estimated     bool
}

// priceOf averages the quarters of the hour: tariffs change at most at quarters.
func priceOf(start time.Time, at func(time.Time) tariff.Price) hourPrice {
	const parts = 4
	mean := func(of func(tariff.Price) *float64) *float64 {
		sum := 0.0
		for i := range parts {
			v := of(at(start.Add(time.Duration(i) * time.Hour / parts)))
			if v == nil {
				return nil
			}
			sum += *v / parts
		}
		return &sum
	}
	first := at(start)
	return hourPrice{
		perKWh: mean(func(p tariff.Price) *float64 { return p.PerKWh }),
		grams:  mean(func(p tariff.Price) *float64 { return p.GramsPerKWh }),
		pue:    first.PUE, estimated: first.Estimated,
	}
}

// wastedRatio returns the part of a job's energy whose work was lost. It is spread over the job's life like its energy.
func wastedRatio(job train.Job, account train.Account) float64 {
	if job.State == train.StateFailed {
		return 1
	}
	waste := unit.Energy(0)
	for _, e := range account.Waste {
		waste += e
	}
	return min(ratio(float64(waste), float64(account.Energy)), 1)
}

// whole converts the part of an account that one node booked into its share of the job: what another node of the gang
// has reported counts there.
func whole(a train.Account) train.Account {
	a.Seconds, a.PeakPower = a.Seconds-a.JointSeconds, max(a.PeakPower, a.JointPeakPower)
	return a
}

// newRow returns a row without energy. What it lists is empty, not nil: it is written as JSON.
func newRow(key string) Row {
	return Row{Key: key, Components: map[string]unit.Energy{}, Methods: []string{}}
}

func (r *Row) addJob(a train.Account, wasted float64, price hourPrice) {
	if r.members == nil {
		r.members = map[train.JobID]bool{}
	}
	r.members[a.Job] = true
	r.Active += a.Active()
	r.Idle += a.Idle
	r.Waste += unit.Energy(wasted * float64(a.Energy))
	for component, e := range a.Components {
		r.add(component, e, a.Methods, price)
	}
	r.Seconds += a.Seconds
	r.PeakWatts = max(r.PeakWatts, a.PeakPower.Watts())
	for _, m := range a.Metering {
		r.measured += m.MeasuredSeconds
		r.expected += m.ExpectedSeconds
	}
}

// add adds energy of a component at a price.
func (r *Row) add(component string, e unit.Energy, methods []string, price hourPrice) {
	r.Components[component] += e
	r.Energy += e
	for _, m := range methods {
		if !slices.Contains(r.Methods, m) {
			r.Methods = append(r.Methods, m)
		}
	}
	facility := e.KilowattHours() * price.pue
	r.FacilityKWh += facility
	if price.perKWh != nil {
		r.priced += e
		r.Cost = plus(r.Cost, facility**price.perKWh)
	}
	if price.grams != nil {
		r.known += e
		r.CO2eGrams = plus(r.CO2eGrams, facility**price.grams)
		if price.estimated {
			r.estimated += e
		}
	}
}

func plus(sum *float64, v float64) *float64 {
	if sum != nil {
		v += *sum
	}
	return &v
}

func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// finish fills in what follows from the sums.
func (r *Row) finish(q Question) {
	r.KWh, r.Jobs = r.Energy.KilowattHours(), len(r.members)
	slices.Sort(r.Methods)
	r.PricedRatio, r.IntensityRatio = ratio(float64(r.priced), float64(r.Energy)), ratio(float64(r.known), float64(r.Energy))
	r.EstimatedRatio = ratio(float64(r.estimated), float64(r.known))
	r.MeanWatts = ratio(r.Active.Joules(), r.Seconds)
	r.CoverageRatio = min(ratio(r.measured, r.expected), 1)
	for _, id := range slices.Sorted(maps.Keys(r.members)) {
		r.compare(q.Jobs[id], q.Accounts[id], q.Default)
	}
	if r.Saving != nil {
		r.Saving.EnergyRatio = 1 - ratio(float64(r.Saving.energy), float64(r.Saving.DefaultEnergy))
		r.Saving.TimePenaltyRatio = ratio(r.Saving.seconds, r.Saving.DefaultSeconds) - 1
	}
	if q.By == ByJob && len(r.members) == 1 {
		r.describe(q.Jobs[train.JobID(r.Key)], q.Accounts[train.JobID(r.Key)])
	}
}

// describe adds what only the row of a job has; energy per epoch is that of its whole life.
func (r *Row) describe(job train.Job, account train.Account) {
	r.Name, r.User, r.State = r.owner.Name, r.owner.User, job.State
	if e := account.ToTarget; e != nil {
		joules := e.Energy.Joules()
		r.JoulesToTarget = &joules
	}
	if account.Epochs == 0 {
		return
	}
	perEpoch := account.PerEpoch().Joules()
	r.JoulesPerEpoch = &perEpoch
	if perSample := account.JoulesPerSample(); perSample > 0 {
		r.JoulesPerSample = &perSample
	}
}

// compare compares a succeeded job with its default configuration, if known.
func (r *Row) compare(job train.Job, account train.Account, of func(train.Job) (Default, bool)) {
	if job.State != train.StateSucceeded || !account.Final {
		return
	}
	d, known := of(job)
	if !known {
		return
	}
	if r.Saving == nil {
		r.Saving = &Saving{}
	}
	r.Saving.DefaultEnergy += d.Energy
	r.Saving.DefaultSeconds += d.Seconds
	r.Saving.energy += account.Energy
	r.Saving.seconds += job.RunSeconds
}
