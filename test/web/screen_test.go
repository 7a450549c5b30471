package web

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/test/web/chromium"
)

// screen is a browser that looks at the page.
type screen struct {
	t       testing.TB
	ctx     context.Context //nolint:containedctx // the deadline of one test
	browser context.Context //nolint:containedctx // that of the browser's tab
}

func newScreen(ctx context.Context, t testing.TB) *screen {
	t.Helper()
	tab, stop, err := chromium.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return &screen{t: t, ctx: ctx, browser: tab}
}

func (s *screen) until(what string, true func() bool) {
	s.t.Helper()
	for range tick.Every(s.ctx, 100*time.Millisecond) {
		if true() {
			return
		}
	}
	s.t.Fatalf("not in time: %s; the page says:\n%s", what, s.text())
}

// do runs actions in the browser.
func (s *screen) do(actions ...chromedp.Action[chromedp.Void]) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.browser, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		s.t.Fatalf("%v; the page says:\n%s", err, s.text())
	}
}

// open starts the browser, which lives as long as this call's context, and opens the page by a link.
func (s *screen) open(link string) {
	s.t.Helper()
	if err := chromedp.Do(s.browser, chromedp.Navigate(link), chromedp.WaitVisible("h1")); err != nil {
		s.t.Fatal(err)
	}
}

// at goes to a page.
func (s *screen) at(hash string) {
	s.t.Helper()
	s.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location.hash = %q", hash)))
}

// text returns what a person reads.
func (s *screen) text() string {
	text, err := chromedp.Run(s.browser, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// shows waits until a person can read all the words.
func (s *screen) shows(words ...string) {
	s.t.Helper()
	for _, w := range words {
		s.until(fmt.Sprintf("the page shows %q", w), func() bool { return strings.Contains(s.text(), w) })
	}
}

// press presses the button with a text.
func (s *screen) press(text string) {
	s.t.Helper()
	s.until("there is a button "+text, func() bool {
		pressed, err := chromedp.Run(s.browser, chromedp.Evaluate[bool](fmt.Sprintf(
			`(() => { const b = [...document.querySelectorAll("button")].find((b) => b.innerText.startsWith(%q)); b?.click(); return !!b; })()`, text)))
		return err == nil && pressed
	})
}

// true waits until an expression is true in the page.
func (s *screen) true(expression string) {
	s.t.Helper()
	s.until(expression, func() bool {
		is, err := chromedp.Run(s.browser, chromedp.Evaluate[bool](expression))
		return err == nil && is
	})
}

// colours makes the page light or dark.
func (s *screen) colours(scheme string) {
	s.t.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	if _, err := chromedp.Call(s.browser, emulation.SetEmulatedMedia, media); err != nil {
		s.t.Fatal(err)
	}
}

// before runs a script before any page that is opened from now on.
func (s *screen) before(script string) {
	s.t.Helper()
	if _, err := chromedp.Call(s.browser, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script}); err != nil {
		s.t.Fatal(err)
	}
}

// refuses lets the browser load nothing from addresses of these patterns.
func (s *screen) refuses(patterns ...string) {
	s.t.Helper()
	var blocked network.SetBlockedURLsParams
	for _, p := range patterns {
		blocked.URLPatterns = append(blocked.URLPatterns, &network.BlockPattern{URLPattern: p, Block: true})
	}
	if _, err := chromedp.Call(s.browser, network.Enable, network.EnableParams{}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := chromedp.Call(s.browser, network.SetBlockedURLs, blocked); err != nil {
		s.t.Fatal(err)
	}
}
