package settings

import (
	"errors"

	"github.com/switchyard-dl/switchyard/libs/config"
)

// Energy configures accounts, prices and time series.
type Energy struct {
	IdlePolicy        string
	Tariff            string
	CarbonToken       string
	ClusterName       string
	InfluxURL         string
	InfluxToken       string
	InfluxOrg         string
	InfluxDatabase    string
	InfluxPipeTune    string
	InfluxGroundTruth string
}

// The values of Energy.IdlePolicy.
const (
	IdleCluster  = "cluster"
	IdleReserved = "reserved"
)

// InfluxDatabase is the default of Energy.InfluxDatabase.
const InfluxDatabase = "switchyard"

// Declare declares the section energy.
func (c *Energy) Declare(set *config.Set) {
	s := set.Section(EnergySection, "The energy service keeps the accounts of jobs, prices them, and writes time series.")
	s.String(&c.IdlePolicy, "idle-policy", IdleCluster, "who pays for idle energy of devices: cluster (no job) or reserved (the jobs that hold them)").
		OneOf(IdleCluster, IdleReserved)
	s.String(&c.Tariff, "tariff", "", "YAML file with prices by time of use, carbon intensity and PUE").Flag()
	s.String(&c.CarbonToken, "carbon-token", "", "token for the tariff's carbon url, sent as auth-token").Secret()
	s.String(&c.ClusterName, "cluster-name", "switchyard", "name of this cluster in the time series")
	s.String(&c.InfluxURL, "influx-url", "", "URL of an InfluxDB 2, or of a 1.8 with Flux, for the time series").Flag().Check(func() error {
		if c.InfluxURL == "" {
			return nil
		}
		return webURL(c.InfluxURL)
	})
	s.String(&c.InfluxToken, "influx-token", "", "its API token; for 1.8 user:password").Secret()
	s.String(&c.InfluxOrg, "influx-org", "switchyard", "its organisation; 1.8 has none")
	s.String(&c.InfluxDatabase, "influx-database", InfluxDatabase, "first part of its buckets: DATABASE/raw, DATABASE/1m, DATABASE/1h (`switchyard influx setup` makes them)").
		Check(func() error {
			if c.InfluxDatabase == "" {
				return errors.New("want a name")
			}
			return nil
		})
	s.String(&c.InfluxPipeTune, "influx-pipetune", "", "database for power under PipeTune's names (PipeTune's own is energy)")
	s.String(&c.InfluxGroundTruth, "influx-ground-truth", "",
		"database for the best known settings of workloads under PipeTune's names (PipeTune's own is ground_truth)")
}
