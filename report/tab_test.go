//go:build browser

package report

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a page of a real browser with a report in it. What the page should never do is a fault of
// the test at its end: to say something on the console, to throw, to ask for anything but itself.
type tab struct {
	*testing.T
	ctx    context.Context
	url    string
	mutex  sync.Mutex
	faults []string
}

// browserFlags are those without which the browser does not start as root, or asks the net for
// things of its own.
var browserFlags = append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
	chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true))

// openTab opens a report in a browser of its own, 1280 pixels wide.
func openTab(t *testing.T, report string) *tab {
	t.Helper()
	allocated, endBrowser := chromedp.NewExecAllocator(t.Context(), append(browserFlags, chromedp.UserDataDir(t.TempDir()))...)
	ctx, endTab := chromedp.NewContext(allocated)
	b := &tab{T: t, ctx: ctx, url: "file://" + report}
	t.Cleanup(func() {
		endTab()
		endBrowser()
		b.mutex.Lock()
		defer b.mutex.Unlock()
		for _, fault := range b.faults {
			t.Error(fault)
		}
	})
	if err := chromedp.Listen(ctx, b.watch); err != nil {
		t.Fatalf("no browser: %v; Debian has one in the package chromium", err)
	}
	_, networkErr := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	_, logErr := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	if networkErr != nil || logErr != nil {
		t.Fatal(networkErr, logErr)
	}
	b.look(1280, false)
	b.open("")
	return b
}

// open opens the report anew, at a place in it, and waits until it shows a trajectory, or nothing
// of trajectories if it has none.
func (b *tab) open(fragment string) {
	b.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(b.url+fragment))
	b.wait("() => document.querySelector('#trajectory .facts') !== null || document.querySelector('#trajectories').hidden")
}

func (b *tab) watch(event any) {
	fault := ""
	switch event := event.(type) {
	case *runtime.EventConsoleAPICalled:
		fault = fmt.Sprintf("the page wrote on the console: %s", event.Type)
	case *runtime.EventExceptionThrown:
		fault = fmt.Sprintf("the page threw: %s", event.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		fault = fmt.Sprintf("the browser complained: %s", event.Entry.Text)
	case *network.EventRequestWillBeSent:
		if address := event.Request.URL; address != b.url && address != "data:," && address != "about:blank" {
			fault = fmt.Sprintf("the page asked for %.200s", address)
		}
	}
	if fault != "" {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		b.faults = append(b.faults, fault)
	}
}

// within limits what is done in the browser: it never takes a minute.
func (b *tab) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.ctx, time.Minute)
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := b.within()
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

// ask calls a function in the page; a promise is waited for.
func ask[T any](b *tab, function string, args ...any) T {
	b.Helper()
	values := make([]string, len(args))
	for k, arg := range args {
		data, err := json.Marshal(arg)
		must(b.T, err)
		values[k] = string(data)
	}
	ctx, cancel := b.within()
	defer cancel()
	call := "(" + function + ")(" + strings.Join(values, ", ") + ")"
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](call, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%v in %s", err, call)
	}
	return value
}

// wait waits until a function returns true.
func (b *tab) wait(function string, args ...any) {
	b.Helper()
	for end := time.Now().Add(time.Minute); !ask[bool](b, function, args...); {
		if time.Now().After(end) {
			b.Fatalf("never true: %s", function)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// click clicks on the n-th element of a selector, from 0, where it lies: what covers it takes the
// click.
func (b *tab) click(selector string, n int) {
	b.Helper()
	at := ask[[]float64](b, `(selector, n) => {
		const element = document.querySelectorAll(selector)[n];
		if (!element) return [];
		element.scrollIntoView({block: 'center'});
		const box = element.getBoundingClientRect();
		return [box.x + box.width / 2, box.y + box.height / 2];
	}`, selector, n)
	if len(at) == 0 {
		b.Fatalf("there is no %s %d", selector, n)
	}
	b.do(chromedp.MouseClickXY(at[0], at[1]))
}

// text is what a person reads in an element.
func (b *tab) text(selector string) string {
	b.Helper()
	return ask[string](b, "selector => document.querySelector(selector)?.innerText ?? ''", selector)
}

func (b *tab) count(selector string) int {
	b.Helper()
	return ask[int](b, "selector => document.querySelectorAll(selector).length", selector)
}

// look sets the width of the window and whether the system is dark.
func (b *tab) look(width int64, dark bool) {
	b.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.do(chromedp.EmulateViewport(width, 900))
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	must(b.T, err)
}

// picture keeps a picture of the whole page in the folder MEMPO_PICTURES, if there is one: for
// people to look at.
func (b *tab) picture(name string) {
	b.Helper()
	dir := os.Getenv("MEMPO_PICTURES")
	if dir == "" {
		return
	}
	data, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	must(b.T, err)
	must(b.T, os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".png"), data, 0o644))
}
