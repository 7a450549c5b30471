package energy

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

// GridConfig says where prices and carbon intensities come from.
type GridConfig struct {
	File  string
	Token string
}

// Flags declares the settings.
func (c *GridConfig) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.File, "tariff", "", "YAML file with prices by time of use, carbon intensity and PUE (empty: none are known)")
	fs.StringVar(&c.Token, "carbon-token", "", "token for the tariff's carbon url, sent as auth-token")
}

// Grid knows the tariff, and the carbon intensities as far as its source has told them.
type Grid struct {
	Tariff tariff.Tariff
	config GridConfig

	mu          sync.Mutex
	intensities tariff.Intensities
}

// LoadGrid reads the tariff and the file of intensities that it names; without a tariff nothing is known.
func LoadGrid(c GridConfig) (*Grid, error) {
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

// Price is the price of a moment.
func (g *Grid) Price(at time.Time) tariff.Price {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.Tariff.At(at, g.intensities)
}

// remembered is how far back intensities that an address told are kept in memory.
const remembered = 400 * 24 * time.Hour

// Refresh asks the tariff's address once; without one it does nothing.
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

// keep refreshes the intensities until ctx ends, and tells what is foretold each time. Sources tell a new one each hour, some a quarter later.
func (g *Grid) keep(ctx context.Context, log *slog.Logger, tell func(context.Context, train.EnergyRates) error) error {
	const every = 10 * time.Minute
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := g.Refresh(ctx); err != nil && ctx.Err() == nil {
			log.Warn("carbon intensity is not known", "error", err)
		}
		if err := tell(ctx, g.Foretold(time.Now())); err != nil && ctx.Err() == nil {
			log.Warn("rates of energy not told", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
