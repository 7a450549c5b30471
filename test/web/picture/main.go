// Command picture logs in to the page by a link and writes a picture of it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/switchyard-dl/switchyard/test/web/chromium"
)

func main() {
	link := flag.String("link", "", "what `switchyard open` prints")
	at := flag.String("at", "#/yard", "pages to draw, each as #/PAGE=FILE, separated by commas")
	width, height := flag.Int64("width", 1280, "pixels"), flag.Int64("height", 800, "pixels")
	dark := flag.Bool("dark", false, "in dark colours")
	settle := flag.Duration("settle", 3*time.Second, "time for the page to load what it shows")
	press := flag.String("press", "", "the text of a button to press on each page that has it")
	flag.Parse()
	if err := draw(*link, *at, *press, *width, *height, *dark, *settle); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func draw(link, pages, press string, width, height int64, dark bool, settle time.Duration) error {
	ctx, stop, err := chromium.Start(context.Background())
	if err != nil {
		return err
	}
	defer stop()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, height)); err != nil {
		return err
	}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media); err != nil {
		return err
	}
	if err := chromedp.Do(ctx, chromedp.Navigate(link), chromedp.WaitVisible("main h1")); err != nil {
		return err
	}
	for pair := range strings.SplitSeq(pages, ",") {
		i := strings.LastIndex(pair, "=")
		err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location.hash = %q", pair[:i])), chromedp.Sleep(settle))
		if err == nil && press != "" {
			err = chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
				`[...document.querySelectorAll("button")].find((b) => b.innerText.startsWith(%q))?.click()`, press)), chromedp.Sleep(settle))
		}
		if err != nil {
			return err
		}
		picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err == nil {
			err = os.WriteFile(pair[i+1:], picture, 0o644)
		}
		if err != nil {
			return fmt.Errorf("draw %s: %w", pair, err)
		}
	}
	return nil
}
