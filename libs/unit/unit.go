// Package unit holds the physical quantities that cross package borders: energy, power and memory. It decides only how
// they are stored and converted.
package unit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Energy is a signed amount of energy in microjoules. It is signed so that the reset of a counter shows as a
// negative difference, which is caught, and never as 2^63 joules.
type Energy int64

// Units of energy.
const (
	Microjoule   Energy = 1
	Millijoule          = 1000 * Microjoule
	Joule               = 1000 * Millijoule
	WattHour            = 3600 * Joule
	KilowattHour        = 1000 * WattHour
)

// Joules returns e in joules.
func (e Energy) Joules() float64 { return float64(e) / float64(Joule) }

// KilowattHours returns e in kWh.
func (e Energy) KilowattHours() float64 { return float64(e) / float64(KilowattHour) }

// String prints e for a person.
func (e Energy) String() string { return Joules(e.Joules()) }

// Joules prints a number of joules for a person: with three digits, and the unit by size.
func Joules(j float64) string {
	const wattHour = 3600
	switch size := math.Abs(j); {
	case j == 0:
		return "0 J"
	case size < 1e-6:
		return threeDigits(j*1e9) + " nJ"
	case size < 1e-3:
		return threeDigits(j*1e6) + " uJ"
	case size < 1:
		return threeDigits(j*1e3) + " mJ"
	case size < wattHour:
		return threeDigits(j) + " J"
	case size < wattHour*1e3:
		return threeDigits(j/wattHour) + " Wh"
	case size < wattHour*1e6:
		return threeDigits(j/(wattHour*1e3)) + " kWh"
	default:
		return threeDigits(j/(wattHour*1e6)) + " MWh"
	}
}

// threeDigits prints a number with three digits, or all that it has before the point.
func threeDigits(x float64) string {
	switch size := math.Abs(x); {
	case size < 9.995:
		return fmt.Sprintf("%.2f", x)
	case size < 99.95:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// Power is a rate of energy in microwatts.
type Power int64

// Units of power.
const (
	Microwatt Power = 1
	Watt            = 1_000_000 * Microwatt
)

// Watts converts a number of watts into a Power.
func Watts(w float64) Power { return Power(math.Round(w * float64(Watt))) }

// Watts returns p in watts.
func (p Power) Watts() float64 { return float64(p) / float64(Watt) }

// Over returns the energy that p spends in d.
func (p Power) Over(d time.Duration) Energy {
	return Energy(math.Round(float64(p) * d.Seconds()))
}

// Bytes is an amount of memory.
type Bytes int64

// Units of memory.
const (
	Byte Bytes = 1
	KiB        = 1024 * Byte
	MiB        = 1024 * KiB
	GiB        = 1024 * MiB
)

// MiB returns b in mebibytes, rounded up, as the RESERVED_MEM variable of a job needs it.
func (b Bytes) MiB() int64 { return int64((b + MiB - 1) / MiB) }

// String prints b with a binary unit.
func (b Bytes) String() string {
	switch {
	case b >= GiB:
		return fmt.Sprintf("%.1f GiB", float64(b)/float64(GiB))
	case b >= MiB:
		return fmt.Sprintf("%.1f MiB", float64(b)/float64(MiB))
	default:
		return fmt.Sprintf("%d B", int64(b))
	}
}

// Exact prints b without rounding, as people write it: 20 GiB, 1536 MiB.
func (b Bytes) Exact() string {
	switch {
	case b >= GiB && b%GiB == 0:
		return fmt.Sprintf("%d GiB", b/GiB)
	case b >= MiB && b%MiB == 0:
		return fmt.Sprintf("%d MiB", b/MiB)
	}
	return b.String()
}

// ParseBytes reads an amount of memory with its unit, binary (20GiB, 512 MiB) or decimal (80GB).
func ParseBytes(s string) (Bytes, error) {
	digits := strings.TrimRight(s, "BbGgiIKkMmTt ")
	n, err := strconv.ParseFloat(digits, 64)
	of, known := map[string]Bytes{
		"kib": KiB, "mib": MiB, "gib": GiB, "tib": 1024 * GiB, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	}[strings.ToLower(strings.TrimSpace(s[len(digits):]))]
	if err != nil || !known || !(n > 0 && n*float64(of) < math.MaxInt64) {
		return 0, fmt.Errorf("want an amount with a unit, such as 20GiB, 512MiB or 80GB; found %.80q", s)
	}
	return Bytes(math.Round(n * float64(of))), nil
}
