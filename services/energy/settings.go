package energy

import (
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/services/energy/grid"
	"github.com/switchyard-dl/switchyard/services/energy/influx"
)

// seriesConfig is the destination of the time series; without a URL there is none.
type seriesConfig struct {
	influx.Config
	database string
	pipetune string
	// groundTruth is the database of the ground truth of workloads; empty for none.
	groundTruth string
	cluster     string
	grid        grid.Config
	// reserved charges idle energy as the ledger does.
	reserved bool
}

// seriesOf takes time series and prices out of the configuration.
func seriesOf(c settings.Energy) seriesConfig {
	return seriesConfig{
		Config: influx.Config{URL: c.InfluxURL, Token: c.InfluxToken, Org: c.InfluxOrg}, database: c.InfluxDatabase, pipetune: c.InfluxPipeTune,
		groundTruth: c.InfluxGroundTruth, cluster: c.ClusterName, grid: grid.Config{File: c.Tariff, Token: c.CarbonToken},
	}
}
