package tariff

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPricesByTimeOfUse(t *testing.T) {
	site, err := Parse([]byte(`
currency: EUR
timezone: Europe/Berlin
price_per_kwh: 0.2
periods:
  - {name: weekend night, days: [Sat], from: "22:00", to: "06:00", price_per_kwh: 0.1}
  - {name: day, days: [mon, tue, wed, thu, fri], from: "07:00", to: "20:00", price_per_kwh: 0.3}
`))
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]float64{
		"2026-01-05T05:59:59Z": 0.2, // Monday 06:59
		"2026-01-05T06:00:00Z": 0.3,
		"2026-01-05T18:59:59Z": 0.3,
		"2026-01-05T19:00:00Z": 0.2,
		"2026-07-06T05:00:00Z": 0.3, // summer time: Monday 07:00
		"2026-01-10T21:00:00Z": 0.1, // Saturday 22:00
		"2026-01-11T04:59:00Z": 0.1, // Sunday 05:59 is still Saturday's night
		"2026-01-10T04:00:00Z": 0.2, // Saturday 05:00 is Friday's
		"2026-01-11T21:00:00Z": 0.2,
	} {
		moment, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if got := site.At(moment, nil); *got.PerKWh != want || got.PUE != 1 || got.GramsPerKWh != nil {
			t.Errorf("%s: %g, want %g", at, *got.PerKWh, want)
		}
	}
}

func TestATariffSaysAllThatIsWrong(t *testing.T) {
	_, err := Parse([]byte(`
timezone: Nowhere/Land
pue: 0.5
price_per_kwh: -1
periods: [{name: p, days: [someday], from: "25:00", to: noon}]
carbon: {grams_per_kwh: 1, file: x.csv}
`))
	for _, word := range []string{"Nowhere/Land", "pue", "price_per_kwh", "someday", "25:00", "noon", "one of grams_per_kwh, file and url"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("nothing of %s in %v", word, err)
		}
	}
	if _, err := Parse([]byte("prise_per_kwh: 1")); err == nil {
		t.Error("an unknown key is taken")
	}
	if empty, err := Parse([]byte("pue:\nperiods:\n  # none yet\nprice_per_kwh: 0.2")); err != nil || empty.PUE != 1 {
		t.Errorf("keys without a value: %+v, %v", empty, err)
	}
}

func TestCarbonIntensityOverTime(t *testing.T) {
	table, err := ParseCSV([]byte("datetime,grams_per_kwh,estimated\n2026-01-05T11:00:00Z,200,true\n2026-01-05T10:00:00Z,100\n"))
	if err != nil {
		t.Fatal(err)
	}
	var site Tariff
	grams := func(at string) any {
		moment, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		p := site.At(moment, table)
		if p.GramsPerKWh == nil {
			return nil
		}
		return []any{*p.GramsPerKWh, p.Estimated}
	}
	for at, want := range map[string]any{
		"2026-01-05T09:59:59Z": nil, "2026-01-05T10:00:00Z": []any{100.0, false}, "2026-01-05T10:59:59Z": []any{100.0, false},
		"2026-01-05T11:30:00Z": []any{200.0, true}, "2026-01-05T13:00:00Z": nil,
	} {
		if d := cmp.Diff(want, grams(at)); d != "" {
			t.Errorf("%s (-want +got)\n%s", at, d)
		}
	}
	for _, bad := range []string{"a,b\nc,d", "2026-01-05T10:00:00Z,-1", "2026-01-05T10:00:00Z"} {
		if _, err := ParseCSV([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestAnswersOfTheShapeOfElectricityMaps(t *testing.T) {
	hour := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	one := `{"zone":"DE","carbonIntensity":302,"datetime":"2026-01-05T10:00:00.000Z","updatedAt":"2026-01-05T09:57:00.000Z","isEstimated":true}`
	none := `{"zone":"DE","carbonIntensity":null,"datetime":"2026-01-05T11:00:00.000Z"}`
	want := Intensities{{From: hour, GramsPerKWh: 302, Estimated: true}}
	for name, text := range map[string]string{
		"latest": one, "history": `{"zone":"DE","history":[` + one + `,` + none + `]}`, "past-range": `{"zone":"DE","data":[` + one + `]}`, "forecast": `{"forecast":[` + one + `]}`,
	} {
		got, err := ParseElectricityMaps([]byte(text))
		if err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s: %v, error %v", name, got, err)
		}
	}
	for _, bad := range []string{`{"error":"Request unauthorized"}`, `not JSON`, none} {
		if _, err := ParseElectricityMaps([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	newer := want.Merge(Intensities{{From: hour, GramsPerKWh: 300}, {From: hour.Add(time.Hour), GramsPerKWh: 1}}, hour)
	if len(newer) != 2 || newer[0].GramsPerKWh != 300 {
		t.Errorf("%v: want the newer answer to count", newer)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("currency: EUR\nperiods: [{name: p, from: \"07:00\", to: \"20:00\", price_per_kwh: 1}]"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		if site, err := Parse(text); err == nil {
			site.At(time.Now(), nil)
		}
		_, _ = ParseCSV(text)
		_, _ = ParseElectricityMaps(text)
	})
}
