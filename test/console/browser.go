package console

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a test waits for something on a page.
const patience = 20 * time.Second

// Browser is one Chromium with a page.
type Browser struct {
	ctx    context.Context
	cancel []context.CancelFunc
	home   string // the address of the node, without a path

	mu    sync.Mutex
	met   []string // other addresses that a browser goes to
	wrong []string
}

// Tools are what the tests need: the program of the browser, and the file of axe-core.
type Tools struct{ Chromium, Axe string }

// Install finds the tools, and installs those that are missing.
func Install(ctx context.Context) (Tools, error) {
	out, err := exec.CommandContext(ctx, "bash", "install.sh").Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return Tools{}, fmt.Errorf("install.sh: %w: %s", err, exit.Stderr)
	} else if err != nil {
		return Tools{}, fmt.Errorf("install.sh: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 {
		return Tools{}, fmt.Errorf("install.sh prints %d lines", len(lines))
	}
	return Tools{lines[0], lines[1]}, nil
}

// Open starts a browser for the node at the address of its operations port.
func Open(ctx context.Context, program, home string) (*Browser, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Flag("hide-scrollbars", true), chromedp.WindowSize(1280, 900))
	allocator, stop := chromedp.NewExecAllocator(ctx, options...)
	// The library does not know each event of a newer browser, and says so each time.
	tab, end := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	b := &Browser{ctx: tab, cancel: []context.CancelFunc{end, stop}, home: home}
	chromedp.ListenTarget(tab, b.hear)
	// A first run without a time limit: the browser ends with the context of its first run.
	if err := chromedp.Run(tab, network.Enable(), runtime.Enable()); err != nil {
		b.Close()
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return b, nil
}

// Close ends the browser.
func (b *Browser) Close() {
	for _, cancel := range b.cancel {
		cancel()
	}
}

// hear keeps what no page may do.
func (b *Browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Scheme != "data" && u.Scheme+"://"+u.Host != b.home && !b.may(e, u) && u.Scheme != "chrome" && e.Request.URL != "about:blank" {
			b.wrong = append(b.wrong, "a request to another host: "+e.Request.URL)
		}
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, "an exception: "+e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		for _, arg := range e.Args {
			b.wrong = append(b.wrong, fmt.Sprintf("console.%s: %s", e.Type, arg.Value))
		}
	}
}

// Meet lets the browser go to an address, such as that of an identity provider. No page may ask it for anything.
func (b *Browser) Meet(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.met = append(b.met, address)
}

// may reports whether a request is for a page that the browser goes to, or for what such a page has.
func (b *Browser) may(e *network.EventRequestWillBeSent, u *url.URL) bool {
	return slices.Contains(b.met, u.Scheme+"://"+u.Host) && (e.Type == network.ResourceTypeDocument || strings.HasPrefix(e.DocumentURL, u.Scheme+"://"+u.Host+"/"))
}

// Wrong returns what pages did that none may, and forgets it.
func (b *Browser) Wrong() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.wrong
	b.wrong = nil
	return all
}

// Run does steps within the patience of a test.
func (b *Browser) Run(steps ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, steps...)
}

// Go opens a place of the console, such as "#/cluster".
func (b *Browser) Go(place string) error {
	return b.Run(chromedp.Evaluate(fmt.Sprintf("location.hash = %q", strings.TrimPrefix(place, "#")), nil))
}

// Load loads the page anew.
func (b *Browser) Load() error { return b.Run(chromedp.Navigate(b.home + "/")) }

// Scheme sets light or dark.
func (b *Browser) Scheme(name string) error {
	return b.Run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}))
}

// Script runs a script whose result is a promise, and decodes what it comes to.
func (b *Browser) Script(script string, into any) error {
	return b.Run(chromedp.Evaluate(script, into, func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
		return p.WithAwaitPromise(true)
	}))
}

// Picture is what the window shows, as PNG.
func (b *Browser) Picture() (png []byte, err error) {
	err = b.Run(chromedp.CaptureScreenshot(&png))
	return png, err
}
