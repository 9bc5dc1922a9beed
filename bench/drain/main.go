// Command drain shows how the proxy goes away: on SIGTERM it stops being ready and ends its watches
// one after another, each after a bookmark and with a terminator; on a second SIGTERM it goes at
// once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/bench/rig"
	"spillway/test/framework/controlplane"
)

const (
	watches = 200 // a fifth of them without bookmarks, a fifth over TLS
	path    = "/api/v1/namespaces/default/configmaps"
	period  = 6 * time.Second
	// grace is how much later than expected something may happen before it counts as not happening: a
	// budget for a busy machine.
	grace = 20 * time.Second
)

func main() { rig.Main("drain", run) }

func run(ctx context.Context, r *rig.Report) error {
	cp, err := rig.StartControlPlane(ctx)
	if err != nil {
		return err
	}
	defer cp.Stop()
	client, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	if err != nil {
		return err
	}
	if err := gently(ctx, cp, client, r); err != nil {
		return err
	}
	return atOnce(ctx, cp, client, r)
}

// start starts a proxy with watches that have all seen the same event.
func start(ctx context.Context, cp *controlplane.ControlPlane, client kubernetes.Interface, period time.Duration,
	players *sync.WaitGroup) (*rig.Proxy, []*watcher, error) {
	p, err := rig.StartProxy(ctx, cp.Kubeconfig(controlplane.Admin), "--resources=configmaps", "--listen-tls=127.0.0.1:0",
		"--insecure-allow-all", "--drain-period="+period.String())
	if err != nil {
		return nil, nil, err
	}
	plain, overTLS := rig.NewHTTPClient(), rig.NewTLSClient(cp.Config(controlplane.Admin).BearerToken)
	var all []*watcher
	for i := range watches {
		w := &watcher{client: plain, base: p.URL, bookmarks: i%5 != 0}
		if i%5 == 1 {
			w.client, w.base = overTLS, p.TLSURL
		}
		all = append(all, w)
		players.Go(func() { w.run(ctx) })
	}
	serving := rig.Eventually(ctx, time.Minute, 20*time.Millisecond, func() bool { return streams(ctx, p) == watches })
	if !serving {
		p.Kill()
		return nil, nil, fmt.Errorf("the proxy serves %d watches of %d", streams(ctx, p), watches)
	}
	made, err := client.CoreV1().ConfigMaps("default").Create(
		ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "news-"}}, metav1.CreateOptions{})
	if err != nil {
		p.Kill()
		return nil, nil, err
	}
	if !rig.Eventually(ctx, time.Minute, 20*time.Millisecond, func() bool { return allSaw(all, made.ResourceVersion) }) {
		p.Kill()
		return nil, nil, fmt.Errorf("not every watch has seen version %s", made.ResourceVersion)
	}
	return p, all, nil
}

func streams(ctx context.Context, p *rig.Proxy) int {
	const metric = "spillway_watches"
	m, err := p.Metrics().Read(ctx, metric)
	if err != nil {
		return -1
	}
	return int(m.Sum(metric))
}

// watcher reads one watch to its end.
type watcher struct {
	client    *http.Client
	base      string
	bookmarks bool

	mu       sync.Mutex
	last     rig.Event
	versions map[uint64]bool
	end      error
	ended    time.Time
}

func (w *watcher) run(ctx context.Context) {
	w.versions = map[uint64]bool{}
	query := url.Values{"resourceVersion": {"0"}, "allowWatchBookmarks": {strconv.FormatBool(w.bookmarks)}}
	watch, err := rig.OpenWatch(ctx, w.client, w.base+path, query)
	if err == nil {
		defer watch.Close()
	}
	for err == nil {
		var e rig.Event
		if e, err = watch.Next(); err == nil {
			w.mu.Lock()
			w.last = e
			w.versions[e.RV] = true
			w.mu.Unlock()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end, w.ended = err, time.Now()
}

func allSaw(all []*watcher, version string) bool {
	rv, err := strconv.ParseUint(version, 10, 64)
	for _, w := range all {
		w.mu.Lock()
		saw := w.versions[rv]
		w.mu.Unlock()
		if !saw {
			return false
		}
	}
	return err == nil
}

// gently sends one SIGTERM.
func gently(ctx context.Context, cp *controlplane.ControlPlane, client kubernetes.Interface, r *rig.Report) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var players sync.WaitGroup
	p, all, err := start(ctx, cp, client, period, &players)
	if err != nil {
		return err
	}
	defer p.Kill()
	// it must not hold anything up
	stalled, err := rig.Stall(ctx, p.URL, path+"?watch=true&resourceVersion=0", rig.SmallWindow)
	if err != nil {
		return err
	}
	defer stalled.Close()
	if err := blocked(ctx, p, client); err != nil {
		return err
	}
	began := time.Now()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	code := 0
	unready := rig.Eventually(ctx, grace, 5*time.Millisecond, func() bool {
		code, err = p.Readyz(ctx)
		return err == nil && code == http.StatusInternalServerError
	})
	r.Check(unready, "readiness goes off", "/readyz answers %d %s after SIGTERM, with %d watches open", code,
		time.Since(began).Round(time.Millisecond), streams(ctx, p))
	_, refused := rig.OpenWatch(ctx, rig.NewHTTPClient(), p.URL+path, url.Values{"resourceVersion": {"0"}})
	r.Check(refused != nil, "new watches are refused", "%v", refused)
	select {
	case <-p.Done():
	case <-time.After(period + grace):
		r.Check(false, "the process ends", "still there %s after SIGTERM", period+grace)
		return nil
	}
	took := time.Since(began)
	players.Wait()
	judge(r, all, began)
	r.Check(p.ExitCode() == 0 && took < period+grace, "the process ends", "exit code %d %s after SIGTERM, drain period %s",
		p.ExitCode(), took.Round(time.Millisecond), period)
	r.Note("its last words", "%s", p.Log.Lines()[len(p.Log.Lines())-1].Text)
	return nil
}

// blocked writes until the one more client is stalled, which the others are not.
func blocked(ctx context.Context, p *rig.Proxy, client kubernetes.Interface) error {
	if !rig.Eventually(ctx, time.Minute, 20*time.Millisecond, func() bool { return streams(ctx, p) == watches+1 }) {
		return fmt.Errorf("the proxy serves %d watches of %d", streams(ctx, p), watches+1)
	}
	large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "large-"},
		Data: map[string]string{"padding": strings.Repeat("x", 200<<10)}}
	for range 3 {
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, large, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// judge looks at how the watches ended.
func judge(r *rig.Report, all []*watcher, began time.Time) {
	clean, marked, withMarks := 0, 0, 0
	first, last := time.Duration(1<<62), time.Duration(0)
	tenths := make([]int, 10)
	for i, w := range all {
		if errors.Is(w.end, io.EOF) && !errors.Is(w.end, io.ErrUnexpectedEOF) {
			clean++
		} else if i < 20 {
			rig.Say("watch %d: %v", i, w.end)
		}
		if w.bookmarks {
			withMarks++
			if w.last.Type == "BOOKMARK" {
				marked++
			}
		}
		at := w.ended.Sub(began)
		first, last = min(first, at), max(last, at)
		tenths[min(9, max(0, int(10*at/period)))]++
	}
	r.Check(clean == len(all), "clean ends", "%d of %d watches got their terminator", clean, len(all))
	r.Check(marked == withMarks, "bookmark before the end", "%d of the %d that take them", marked, withMarks)
	r.Check(last-first > period/2, "ends are spread out", "from %s to %s; in each tenth of the drain period: %v",
		first.Round(time.Millisecond), last.Round(time.Millisecond), tenths)
}

// atOnce sends SIGTERM twice.
func atOnce(ctx context.Context, cp *controlplane.ControlPlane, client kubernetes.Interface, r *rig.Report) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var players sync.WaitGroup
	const long = 10 * time.Minute
	p, _, err := start(ctx, cp, client, long, &players)
	if err != nil {
		return err
	}
	defer p.Kill()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	draining := func() bool {
		return len(p.Log.With("draining: ending streams one by one; a second signal stops at once")) > 0
	}
	if !rig.Eventually(ctx, grace, 5*time.Millisecond, draining) {
		return fmt.Errorf("the proxy does not say that it drains; its log:\n%s", p.Log)
	}
	began := time.Now()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-time.After(grace):
	}
	took := time.Since(began)
	p.Kill()
	r.Check(took < grace && p.ExitCode() == 1, "a second SIGTERM", "exit code %d %s after it, drain period %s",
		p.ExitCode(), took.Round(time.Millisecond), long)
	players.Wait()
	return nil
}
