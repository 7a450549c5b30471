package powermeter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// statusPage is where the PDU shows its sensors as JSON.
const statusPage = "/statusjsn.js?components=16384"

// PDU reads the outlets of a power distribution unit that feed one node.
type PDU struct {
	url     string
	outlets []int
	client  *http.Client
}

// NewPDU makes a gauge of the outlets that feed a node, by the PDU's address (http://pdu-address). Outlets count from
// 0, as in the PDU's own list.
func NewPDU(url string, outlets []int, client *http.Client) *PDU {
	return &PDU{url: strings.TrimSuffix(url, "/") + statusPage, outlets: outlets, client: client}
}

// ParseOutlets parses outlets such as 3 or, for a node with several power supplies, 3+4.
func ParseOutlets(text string) ([]int, error) {
	var outlets []int
	for word := range strings.SplitSeq(text, "+") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 0 {
			return nil, fmt.Errorf("outlets %q: want numbers from 0 on, as in 3+4", text)
		}
		outlets = append(outlets, n)
	}
	return outlets, nil
}

// Power adds up the outlets.
func (p *PDU) Power(ctx context.Context) (unit.Power, error) {
	body, err := get(ctx, p.client, p.url, "", "")
	if err != nil {
		return 0, err
	}
	power, err := p.parse(body)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", redacted(p.url), err)
	}
	return power, nil
}

// parse finds the watts of the outlets at sensor_values[1].values[outlet][4].v. The page's other sensors may have any
// form.
func (p *PDU) parse(body []byte) (unit.Power, error) {
	const outletGroup, wattColumn = 1, 4
	var page struct {
		SensorValues []json.RawMessage `json:"sensor_values"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return 0, err
	}
	if len(page.SensorValues) <= outletGroup {
		return 0, errors.New("no sensor_values of outlets")
	}
	var group struct {
		Values [][]json.RawMessage `json:"values"`
	}
	if err := json.Unmarshal(page.SensorValues[outletGroup], &group); err != nil {
		return 0, err
	}
	sum := unit.Power(0)
	for _, outlet := range p.outlets {
		if outlet >= len(group.Values) || len(group.Values[outlet]) <= wattColumn {
			return 0, fmt.Errorf("outlet %d is not there: the PDU has %d", outlet, len(group.Values))
		}
		var cell struct {
			V json.Number `json:"v"`
		}
		err := json.Unmarshal(group.Values[outlet][wattColumn], &cell)
		w, notNumber := cell.V.Float64()
		if err := errors.Join(err, notNumber); err != nil {
			return 0, fmt.Errorf("outlet %d: %w", outlet, err)
		}
		power, err := watts(w)
		if err != nil {
			return 0, fmt.Errorf("outlet %d: %w", outlet, err)
		}
		sum += power
	}
	return sum, nil
}
