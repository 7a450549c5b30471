// Package chromium starts a browser that no person sees.
package chromium

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/chromedp/chromedp"
)

// ErrNone says that the machine has no Chromium.
var ErrNone = errors.New("no chromium here (Debian: apt-get install chromium)")

// Find returns the path of a Chromium.
func Find() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNone
}

// Start starts one with an empty profile. It ends when stop is called.
func Start(ctx context.Context) (browser context.Context, stop func(), err error) {
	path, err := Find()
	if err != nil {
		return nil, nil, err
	}
	profile, err := os.MkdirTemp("", "switchyard-chromium-")
	if err != nil {
		return nil, nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.NoFirstRun)
	allocated, end := chromedp.NewExecAllocator(ctx, options...)
	browser, closeTab := chromedp.NewContext(allocated)
	return browser, func() {
		closeTab()
		end()
		_ = os.RemoveAll(profile)
	}, nil
}
