package status

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/process"
)

var screenshots = flag.String("screenshots", "", "leave pictures of the page in this folder")

// browser is a headless Chromium with one page, and what it complained of.
type browser struct {
	t      *testing.T
	ctx    context.Context
	folder string // of files that the page names, which pictures do not

	mu         sync.Mutex
	complaints []string
}

// chromium is the program; the test is skipped where there is none.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "headless_shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium here: make browser installs Debian's")
	return ""
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)),
		chromedp.UserDataDir(t.TempDir()))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // as root it has none
	}
	bounded, cancel := context.WithTimeout(context.Background(), 2*process.Patience)
	t.Cleanup(cancel)
	allocated, cancelAllocated := chromedp.NewExecAllocator(bounded, options...)
	t.Cleanup(cancelAllocated)
	ctx, cancelPage := chromedp.NewContext(allocated)
	b := &browser{t: t, ctx: ctx}
	said := chromedp.Console(ctx) // which starts it
	var listening sync.WaitGroup
	listening.Go(func() {
		for message, err := range said {
			if err == nil {
				b.mu.Lock()
				b.complaints = append(b.complaints, message.String()+" "+message.URL)
				b.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		cancelPage()
		listening.Wait()
	})
	return b
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// click clicks on what has an id.
func click(id string) chromedp.Action[chromedp.Void] { return chromedp.Click(chromedp.ID(id)) }

// value is what a JavaScript expression is in the page.
func value[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// becomes waits until an expression is true in the page.
func (b *browser) becomes(what, expression string) {
	b.t.Helper()
	process.Awaiting(b.t, what, func(context.Context) error {
		if !value[bool](b, expression) {
			return fmt.Errorf("%s is not so", expression)
		}
		return nil
	})
}

// size makes the window so wide, and likes light or dark.
func (b *browser) size(width int64, scheme string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, 640), chromedp.Func(func(ctx context.Context, page *chromedp.Target) error {
		_, err := cdp.Call(ctx, page, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

// column is the text of a column of the watches.
func (b *browser) column(class string) []string {
	b.t.Helper()
	return value[[]string](b,
		fmt.Sprintf(`[...document.querySelectorAll("#watches-body .%s")].map(cell => cell.innerText)`, class))
}

// falls checks that a column of durations is sorted from the largest on.
func (b *browser) falls(class string) {
	b.t.Helper()
	last := time.Duration(1<<63 - 1)
	for i, text := range b.column(class) {
		lag := time.Duration(0)
		if text != "–" {
			var err error
			if lag, err = time.ParseDuration(text); err != nil {
				b.t.Fatal(err)
			}
		}
		if lag > last {
			b.t.Errorf("row %d: %s after %s", i, lag, last)
		}
		last = lag
	}
}

// replace replaces what the page says, until it is refreshed.
func (b *browser) replace(old, by string) {
	b.t.Helper()
	value[int](b, fmt.Sprintf(`(() => {
		const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		let count = 0;
		while (texts.nextNode()) {
			const text = texts.currentNode;
			if (text.data.includes(%[1]q)) { text.data = text.data.replaceAll(%[1]q, %[2]q); count++ }
		}
		return count;
	})()`, old, by))
}

// fits checks that nothing makes the page wider than its window, and takes a picture.
func (b *browser) fits(width int64, scheme string) {
	b.t.Helper()
	b.size(width, scheme)
	if wide := value[int64](b, "document.documentElement.scrollWidth"); wide > width {
		b.t.Errorf("the page is %d wide in a window of %d", wide, width)
	}
	if *screenshots == "" {
		return
	}
	b.replace(b.folder, "/etc/spillway")
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, fmt.Sprintf("status-%d-%s.png", width, scheme)), picture,
		0o644); err != nil {
		b.t.Fatal(err)
	}
}

// named checks that every control has a name for users that do not see it, and returns how many of
// each role there are.
func (b *browser) named() map[string]int {
	b.t.Helper()
	tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	roles := map[string]int{}
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		role := strings.Trim(string(n.Role.Value), `"`)
		switch role {
		case "button", "link", "spinbutton", "textbox", "region", "table", "columnheader", "rowheader":
			roles[role]++
			if n.Name == nil || strings.Trim(string(n.Name.Value), `" `) == "" {
				b.t.Errorf("a %s without a name", role)
			}
		}
	}
	return roles
}

// browse looks at the page as operators do.
func (w *world) browse(t *testing.T) {
	b := newBrowser(t)
	b.folder = filepath.Dir(w.Kubeconfig(authcluster.Self))
	page := w.proxy.Metrics + "/statusz"
	b.size(1280, "light")
	b.do(chromedp.Navigate(page), chromedp.WaitVisible(chromedp.ID("pause")))
	if rows := value[int](b, `document.querySelectorAll("#watches-body tr").length`); rows < 200 {
		t.Errorf("%d rows", rows)
	}
	for _, width := range []int64{1280, 400} {
		for _, scheme := range []string{"light", "dark"} {
			b.fits(width, scheme)
		}
	}
	b.size(1280, "light")
	if roles := b.named(); roles["button"] < 2 || roles["link"] < 25 || roles["spinbutton"] != 1 || roles["table"] != 4 ||
		roles["columnheader"] < 30 {
		t.Errorf("there are %v", roles)
	}

	// It is refreshed in place, in the order that was chosen; the page itself stays.
	value[string](b, `window.same = true, window.before = document.getElementById("moment").innerText`)
	b.becomes("a refresh", `document.getElementById("moment").innerText !== window.before`)
	b.falls("lag")
	b.do(click("watches-by-user"))
	b.becomes("the order by user",
		`document.querySelector("#watches-by-user").parentElement.ariaSort === "ascending" &&
		document.querySelector("#watches-body th").innerText === "alice"`)
	b.do(click("watches-by-user"))
	b.becomes("the other way round",
		`document.querySelector("#watches-by-user").parentElement.ariaSort === "descending" &&
		document.querySelector("#watches-body th").innerText !== "alice"`)
	b.becomes("the link to have the focus",
		`document.activeElement.id === "watches-by-user" && location.search === "?sort=-user"`)
	b.do(click("watches-by-lag"))
	b.becomes("the order by lag", `document.querySelector("#watches-by-lag").parentElement.ariaSort === "descending"`)
	b.falls("lag")
	b.do(click("pause"))
	b.becomes("the pause", `document.getElementById("pause").ariaPressed === "true"`)
	value[string](b, `window.before = document.getElementById("moment").innerText`)
	b.do(click("pause"))
	b.becomes("news after the pause",
		`document.getElementById("pause").ariaPressed === "false" &&
		document.getElementById("moment").innerText !== window.before`)
	if title := value[string](b, "document.title"); title != "Spillway status" || !value[bool](b, "window.same") {
		t.Errorf("the page was replaced, or owned: %s", title)
	}

	// Without its script it is a page with tables, sorted by links.
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(page + "?limit=50"))
	if hidden := value[bool](b, `document.getElementById("pause").hidden`); !hidden {
		t.Error("there is a button that does nothing")
	}
	b.do(click("watches-by-user"), chromedp.WaitVisible(chromedp.CSS(`th[aria-sort="ascending"] #watches-by-user`)))
	if rows := value[int](b, `document.querySelectorAll("#watches-body tr").length`); rows != 50 {
		t.Errorf("%d rows", rows)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, complaint := range b.complaints {
		t.Errorf("the browser complains: %s", complaint)
	}
}
