package netrole

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/tick"
)

// Follow runs a role with the configuration that a controller serves, and begins again when that changes. Only the
// controller needs the file.
func Follow(ctx context.Context, controller string, log *slog.Logger, role func(context.Context, Config) error) error {
	client := http.Client{Timeout: 5 * time.Second}
	c, err := fetchConfig(ctx, &client, controller, log)
	for err == nil && ctx.Err() == nil {
		var next Config
		work := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError()
		work.Go(func(ctx context.Context) error { return role(ctx, c) })
		work.Go(func(ctx context.Context) (err error) {
			next, err = changedConfig(ctx, &client, controller, c)
			return err
		})
		if err = work.Wait(); errors.Is(err, errChanged) {
			log.Info("the configuration has changed")
			c, err = next, nil
		}
	}
	return err
}

var errChanged = errors.New("the configuration has changed")

// fetchConfig asks until the controller answers. The controller is reached as it was here, whatever its file says.
func fetchConfig(ctx context.Context, client *http.Client, controller string, log *slog.Logger) (Config, error) {
	said := ""
	for wait := time.Duration(0); tick.Pause(ctx, wait); wait = askAgain {
		c, err := get[Config](ctx, client, "http://"+controller+"/config")
		if err == nil {
			c.Controller = controller
			return c, nil
		}
		if said != err.Error() {
			said = err.Error()
			log.Warn("the configuration is not there yet", "error", err)
		}
	}
	return Config{}, ctx.Err()
}

// changedConfig waits until the controller serves another configuration; it then returns errChanged with it.
func changedConfig(ctx context.Context, client *http.Client, controller string, before Config) (Config, error) {
	for tick.Pause(ctx, before.Cycle) {
		c, err := get[Config](ctx, client, "http://"+controller+"/config")
		c.Controller = controller
		if err == nil && !reflect.DeepEqual(c, before) {
			return c, errChanged
		}
	}
	return Config{}, nil
}

// OwnServer returns the one server of the configuration whose address this machine has.
func (c *Config) OwnServer() (netip.Addr, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	var own []netip.Addr
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && slices.Contains(c.Servers, prefix.Addr().Unmap()) {
			own = append(own, prefix.Addr().Unmap())
		}
	}
	if len(own) != 1 {
		return netip.Addr{}, fmt.Errorf("%d of server_1.. are addresses of this machine: say which with --host", len(own))
	}
	return own[0], nil
}
