package energy

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/services/energy/influx"
)

// DefaultDatabase is what the buckets of the time series begin with.
const DefaultDatabase = "switchyard"

// seriesConfig says where the time series go; without a URL nowhere.
type seriesConfig struct {
	influx.Config
	database string
	pipetune string
	// groundTruth is the database of what is known of workloads; empty for none.
	groundTruth string
	cluster     string
	grid        GridConfig
	// reserved charges idleness as the ledger does.
	reserved bool
}

func (c *seriesConfig) flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.URL, "influx-url", "", "URL of an InfluxDB 2, or of a 1.8 with Flux, for the time series (empty: none are written)")
	fs.StringVar(&c.Token, "influx-token", "", "its API token; for 1.8 user:password")
	fs.StringVar(&c.Org, "influx-org", "switchyard", "its organisation; 1.8 has none")
	fs.StringVar(&c.database, "influx-database", DefaultDatabase, "what its buckets begin with: DATABASE/raw, DATABASE/1m, DATABASE/1h (`switchyard influx setup` makes them)")
	fs.StringVar(&c.pipetune, "influx-pipetune", "", "database in which power is also written under PipeTune's names (its own is energy; empty: nowhere)")
	fs.StringVar(&c.groundTruth, "influx-ground-truth", "", "database in which the best settings known of workloads are written under PipeTune's names (its own is ground_truth; empty: nowhere)")
	fs.StringVar(&c.cluster, "cluster-name", "switchyard", "name of this cluster in the time series")
	c.grid.Flags(fs)
}

func (c *seriesConfig) validate() error {
	var errs []error
	if u, err := url.Parse(c.URL); c.URL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		errs = append(errs, fmt.Errorf("--influx-url %q: want a URL such as http://127.0.0.1:8086", c.URL))
	}
	if c.database == "" {
		errs = append(errs, errors.New("--influx-database: want a name"))
	}
	return errors.Join(errs...)
}
