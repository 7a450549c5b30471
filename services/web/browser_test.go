package web

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/web/chromium"
)

// The list of jobs holds ten thousand of them, and draws those that a person sees.
func TestTenThousandJobsScroll(t *testing.T) {
	if _, err := chromium.Find(); err != nil {
		t.Skip(err)
	}
	const all = 10_000
	b := openBench(t)
	began := time.Now().Add(-time.Hour)
	for i := range all {
		b.put(train.Job{
			ID: train.JobID(fmt.Sprintf("job-%05d", i)), State: train.StateSucceeded, SubmittedAt: began.Add(time.Duration(i) * time.Millisecond),
			Spec: train.Spec{Name: fmt.Sprintf("name-%05d", i), User: "ann"},
		})
	}
	b.serve()
	tab, stop, err := chromium.Start(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	at := b.link()
	if err := chromedp.Do(tab, chromedp.Navigate(at.String()), chromedp.WaitVisible("main h1"), chromedp.Evaluate[chromedp.Void](`location.hash = "#/jobs"`)); err != nil {
		t.Fatal(err)
	}
	says := func(what, script string) {
		t.Helper()
		b.until(what, func() bool {
			is, err := chromedp.Run(tab, chromedp.Evaluate[bool](script))
			return err == nil && is
		})
	}
	says("all jobs are there", `document.querySelector(".head [role=status]")?.innerText === "10000"`)
	says("the newest is first", `document.querySelector("tbody td.name a")?.innerText === "name-09999"`)
	says("the table has rows for what is seen", `document.querySelectorAll("tbody tr").length < 100`)
	ctx, cancel := context.WithTimeout(tab, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](`{ const e = document.querySelector(".scroll.jobs"); e.scrollTop = e.scrollHeight }`)); err != nil {
		t.Fatal(err)
	}
	says("the oldest is last", `[...document.querySelectorAll("td.name a")].at(-1)?.innerText === "name-00000" && document.querySelectorAll("tbody tr").length < 100`)
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](`location.hash = "#/jobs?text=name-04242"`)); err != nil {
		t.Fatal(err)
	}
	says("one is found", `document.querySelector(".head [role=status]").innerText === "1 of 10000" && document.querySelector("td.name a").innerText === "name-04242"`)
}
