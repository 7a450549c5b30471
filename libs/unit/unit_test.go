package unit_test

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

func TestConversions(t *testing.T) {
	if e := unit.Watts(250).Over(2 * time.Second); e != 500*unit.Joule {
		t.Errorf("250 W over 2 s is %d uJ", e)
	}
	if e := unit.KilowattHour; e.Joules() != 3.6e6 || e.KilowattHours() != 1 {
		t.Errorf("a kWh is %v J, %v kWh", e.Joules(), e.KilowattHours())
	}
	if m := (unit.MiB + 1).MiB(); m != 2 {
		t.Errorf("a byte over a MiB reserves %d MiB, want 2", m)
	}
}

func TestEnergyReadsWell(t *testing.T) {
	for e, want := range map[unit.Energy]string{
		0: "0 J", 7: "7.00 uJ", 535 * unit.Microjoule: "535 uJ", 9_040 * unit.Microjoule: "9.04 mJ", 1500 * unit.Millijoule: "1.50 J", 85_612 * unit.Millijoule: "85.6 J", 3599 * unit.Joule: "3599 J",
		12_345 * unit.Joule: "3.43 Wh", 999 * unit.WattHour: "999 Wh", 2 * unit.KilowattHour: "2.00 kWh", 1500 * unit.KilowattHour: "1.50 MWh", -3 * unit.Joule: "-3.00 J",
	} {
		if got := e.String(); got != want {
			t.Errorf("%d uJ reads %q, want %q", e, got, want)
		}
	}
}

func TestDurationsReadAsPeopleWriteThem(t *testing.T) {
	for s, want := range map[string]string{"2h": "2h", "90m": "1h30m", "1d12h": "36h", "2d": "48h", "1h0m30s": "1h0m30s", "30s": "30s", "500ms": "500ms"} {
		d, err := unit.ParseDuration(s)
		if text, _ := d.MarshalText(); err != nil || string(text) != want {
			t.Errorf("%s reads %s, error %v; want %s", s, text, err, want)
		}
	}
	for _, s := range []string{"", "2", "-1", "d", "1d-1h", "0", "0s", "-1s", "-1d", "two hours", "99999999d", "3000000h"} {
		if d, err := unit.ParseDuration(s); err == nil {
			t.Errorf("%q is taken for %s", s, d)
		}
	}
}

func TestAmountsOfMemory(t *testing.T) {
	for written, want := range map[string]unit.Bytes{"20GiB": 20 * unit.GiB, "512 MiB": 512 * unit.MiB, "1.5gib": 1536 * unit.MiB, "80GB": 80e9, "1TiB": 1024 * unit.GiB, "3kb": 3000} {
		if got, err := unit.ParseBytes(written); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", written, got, err, want)
		}
	}
	for _, wrong := range []string{"", "20", "GiB", "-1GiB", "0GiB", "NaNGiB", "20 G i B", "1e30TiB", "20Gibi"} {
		if got, err := unit.ParseBytes(wrong); err == nil {
			t.Errorf("%q is read as %d", wrong, got)
		}
	}
	for b, want := range map[unit.Bytes]string{20 * unit.GiB: "20 GiB", 24577 * unit.MiB: "24577 MiB", 80e9: "74.5 GiB", 5: "5 B"} {
		if got := b.Exact(); got != want {
			t.Errorf("%d is printed as %q, want %q", b, got, want)
		}
	}
}
