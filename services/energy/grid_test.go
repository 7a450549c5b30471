package energy

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/grid"
)

// site writes a tariff that is higher from noon to one, with the given carbon section.
func site(t *testing.T, carbon string) grid.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "site.yaml")
	text := "price_per_kwh: 0.2\nperiods: [{name: noon, from: \"12:00\", to: \"13:00\", price_per_kwh: 0.4}]\ncarbon: {" + carbon + "}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return grid.Config{File: path}
}

// forecaster answers as Electricity Maps does, with one intensity for each hour from a time on.
func forecaster(t *testing.T, from time.Time, grams ...int) string {
	t.Helper()
	text := ""
	for i, g := range grams {
		text += fmt.Sprintf(`,{"carbonIntensity": %d, "datetime": %q}`, g,
			from.Add(time.Duration(i)*time.Hour).Format(time.RFC3339))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"zone": "CH", "forecast": [%s]}`, text[1:])
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestForecast(t *testing.T) {
	now := hour.Add(5 * time.Minute) // 12:05
	at := func(h int) time.Time { return hour.Add(time.Duration(h) * time.Hour) }
	for name, c := range map[string]struct {
		carbon string
		want   train.EnergyRates
	}{
		"prices alone": {"", train.EnergyRates{Until: at(72), Rates: []train.EnergyRate{
			{From: at(0), PricePerKWh: 0.4},
			{From: at(1), PricePerKWh: 0.2},
			{From: at(24), PricePerKWh: 0.4},
			{From: at(25), PricePerKWh: 0.2},
			{From: at(48), PricePerKWh: 0.4},
			{From: at(49), PricePerKWh: 0.2},
		}}},
		"a forecast of three hours": {"url: " + forecaster(t, at(0), 500, 500, 90), train.EnergyRates{Until: at(4), Rates: []train.EnergyRate{
			{From: at(0), PricePerKWh: 0.4, GramsPerKWh: 500}, {From: at(1), PricePerKWh: 0.2, GramsPerKWh: 500}, {From: at(2), PricePerKWh: 0.2, GramsPerKWh: 90},
		}}},
	} {
		g, err := grid.Load(site(t, c.carbon))
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Refresh(within(t)); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, g.Forecast(now)); d != "" {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
	}
	if nothing := new(grid.Grid).Forecast(now); len(nothing.Rates) > 0 {
		t.Errorf("without a tariff: %+v", nothing)
	}
}

func TestTheServiceTellsWhatIsForetold(t *testing.T) {
	t.Parallel()
	k := newBooks(t)
	rates, err := bus.OpenKV[train.EnergyRates](within(t), k.bus, contract.Rates)
	if err != nil {
		t.Fatal(err)
	}
	k.startWith(New(settings.Energy{Tariff: site(t, "url: "+forecaster(t, time.Now().UTC().Truncate(time.Hour), 400, 300)).File, IdlePolicy: settings.IdleCluster}))
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var reported train.EnergyRates
	if err := rates.Watch(ctx, func(e bus.Entry[train.EnergyRates], _ bool) { reported = e.Value; cancel() }, nil); err != nil {
		t.Fatal(err)
	}
	if last := reported.Rates[len(reported.Rates)-1]; last.GramsPerKWh != 300 || reported.Rates[0].GramsPerKWh != 400 {
		t.Errorf("%+v", reported)
	}
}
