package contract

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Value is the value of a parameter: a finite number or a text. It is comparable. In JSON it is a number or a text.
type Value struct {
	text     string
	number   float64
	isNumber bool
}

// Number is the value of a number, which must be finite.
func Number(x float64) Value { return Value{number: x, isNumber: true} }

// Text is the value of a text.
func Text(s string) Value { return Value{text: s} }

// ParseValue reads a number if s is written as String would write it, else a text: "007" remains a text.
func ParseValue(s string) Value {
	x, err := strconv.ParseFloat(s, 64)
	if v := Number(x); err == nil && !math.IsInf(x, 0) && !math.IsNaN(x) && v.String() == s {
		return v
	}
	return Text(s)
}

// Float returns the number; ok is false for a text.
func (v Value) Float() (x float64, ok bool) { return v.number, v.isNumber }

// IsNumber reports whether the value is a number.
func (v Value) IsNumber() bool { return v.isNumber }

// String is the value as programs read it: whole numbers without a point or exponent.
func (v Value) String() string {
	const exact = 1 << 53
	switch {
	case !v.isNumber:
		return v.text
	case v.number == math.Trunc(v.number) && math.Abs(v.number) < exact:
		return strconv.FormatFloat(v.number, 'f', 0, 64)
	}
	return strconv.FormatFloat(v.number, 'g', -1, 64)
}

// MarshalJSON writes a number or a text.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.isNumber {
		return json.Marshal(v.number)
	}
	return json.Marshal(v.text)
}

// UnmarshalJSON reads a number or a text.
func (v *Value) UnmarshalJSON(data []byte) error {
	var x float64
	if json.Unmarshal(data, &x) == nil && string(data) != "null" {
		*v = Number(x)
		return nil
	}
	var s *string
	if err := json.Unmarshal(data, &s); err != nil || s == nil {
		return fmt.Errorf("read value %.80q: want a number or a text", data)
	}
	*v = Text(*s)
	return nil
}
