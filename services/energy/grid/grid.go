// Package grid knows what energy costs and what carbon it stands for: it reads the tariff, asks the source of carbon
// intensities, and prices any moment. Package tariff does the arithmetic.
package grid

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

// Config names the sources of prices and carbon intensities.
type Config struct {
	File  string
	Token string
}

// Grid holds the tariff, and the carbon intensities received so far.
type Grid struct {
	Tariff tariff.Tariff
	config Config

	mu          sync.Mutex
	intensities tariff.Intensities
}

// Load reads the tariff and the file of intensities that it names; without a tariff nothing is known.
func Load(c Config) (*Grid, error) {
	g := &Grid{config: c, Tariff: tariff.Tariff{PUE: 1}}
	if c.File == "" {
		return g, nil
	}
	text, err := os.ReadFile(c.File)
	if err != nil {
		return nil, fmt.Errorf("open tariff: %w", err)
	}
	if g.Tariff, err = tariff.Parse(text); err != nil {
		return nil, fmt.Errorf("%s: %w", c.File, err)
	}
	if path := g.Tariff.Carbon.File; path != "" {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(c.File), path)
		}
		if text, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("open carbon intensities: %w", err)
		}
		if g.intensities, err = tariff.ParseCSV(text); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return g, nil
}

// Price returns the price at a time.
func (g *Grid) Price(at time.Time) tariff.Price {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.Tariff.At(at, g.intensities)
}

// remembered is the age up to which received intensities stay in memory.
const remembered = 400 * 24 * time.Hour

// Refresh queries the tariff's address once; without an address it does nothing.
func (g *Grid) Refresh(ctx context.Context) error {
	if g.Tariff.Carbon.URL == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, g.Tariff.Carbon.URL, nil)
	if err != nil {
		return fmt.Errorf("ask for carbon intensities: %w", err)
	}
	if g.config.Token != "" {
		request.Header.Set("Auth-Token", g.config.Token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask for carbon intensities: %w", err)
	}
	defer response.Body.Close()
	const most = 4 << 20
	text, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return fmt.Errorf("ask for carbon intensities: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask for carbon intensities: HTTP %d: %.200q", response.StatusCode, text)
	}
	newer, err := tariff.ParseElectricityMaps(text)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.intensities = g.intensities.Merge(newer, newer[len(newer)-1].From.Add(-remembered))
	return nil
}
