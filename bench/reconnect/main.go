// Command reconnect shows what a herd costs in memory: thousands of clients that reconnect in the
// same second, each of which needs a state and then watches. It measures the proxy's RSS and the
// kernel's memory for TCP every 100 ms, in a control group where one can be made, and a
// kube-apiserver that serves a small part of such a herd.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"spillway/bench/rig"
)

var (
	pods   = flag.Int("pods", 5000, "pods in the cluster")
	nodes  = flag.Int("nodes", 10, "nodes that they are spread over")
	many   = flag.Int("many", 2000, "clients that reconnect at once and need the pods of one node each")
	few    = flag.Int("few", 200, "clients that reconnect at once and need all pods")
	direct = flag.Int("direct", 100, "clients that reconnect to kube-apiserver at once; 0 is none")
	budget = flag.Int("budget", 512,
		"the most that the proxy may use, with the kernel's TCP, in MiB; also the limit of its control group")
	heap = flag.String("heap", "",
		"write a heap profile of the proxy, as it is in the middle of each herd, into files with this prefix")
	only    = flag.String("only", "", "the herds whose names contain this; all without it")
	given   = flag.String("memory-budget", "", "the proxy's --memory-budget; its own choice without it")
	settled = flag.Duration("settle", 3*time.Second, "how long the proxy rests before each herd")
)

func main() { rig.Measure("reconnect", run) }

// reconnectingClients is clients that all do the same.
type reconnectingClients struct {
	name string
	n    int
	part int  // the first so many are of one node each
	list bool // a watch-list; else a watch at resourceVersion 0
	gzip bool
}

func run(ctx context.Context, scores *rig.Scores) error {
	pair, err := rig.StartAPIServers(ctx)
	if err != nil {
		return err
	}
	defer pair.Stop()
	if err := pair.CreatePods(ctx, 0, *pods, *nodes); err != nil {
		return err
	}
	group, err := rig.NewCgroup("spillway-reconnect-"+strconv.Itoa(os.Getpid()), int64(*budget)<<20)
	if err != nil {
		scores.Note("not in a control group", "%v", err)
	} else {
		defer func() {
			pair.StopProxy()
			_ = group.Remove()
		}()
		pair.Cgroup = group
	}
	for _, h := range []reconnectingClients{
		{name: fmt.Sprintf("%d watches at RV=0 of %d pods", *many, *pods / *nodes), n: *many, part: *many},
		{name: fmt.Sprintf("%d watch-lists of %d pods", *many, *pods / *nodes), n: *many, part: *many, list: true},
		{name: fmt.Sprintf("%d watch-lists of %d pods, gzip", *many, *pods / *nodes), n: *many, part: *many, list: true,
			gzip: true},
		{name: fmt.Sprintf("%d watches at RV=0 of %d pods", *few, *pods), n: *few},
		{name: fmt.Sprintf("%d watch-lists of %d pods", *few, *pods), n: *few, list: true},
		{name: fmt.Sprintf("%d watch-lists of %d pods, gzip", *few, *pods), n: *few, list: true, gzip: true},
		{name: "both at once, by watch-list", n: *many + *few, part: *many, list: true},
	} {
		if err := through(ctx, pair, scores, h); err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
	}
	pair.StopProxy()
	if *direct == 0 {
		return nil
	}
	for _, h := range []reconnectingClients{
		{name: fmt.Sprintf("%d watch-lists of %d pods", *direct, *pods / *nodes), n: *direct, part: *direct, list: true},
		{name: fmt.Sprintf("%d watch-lists of %d pods", *direct, *pods), n: *direct, list: true},
	} {
		if err := beside(ctx, pair, scores, h); err != nil {
			return fmt.Errorf("kube-apiserver: %s: %w", h.name, err)
		}
	}
	return nil
}

// through measures a herd that reconnects to a proxy that has just been started, as after a restart
// of its own.
func through(ctx context.Context, pair *rig.Pair, scores *rig.Scores, h reconnectingClients) error {
	if h.n == 0 || !strings.Contains(h.name, *only) {
		return nil
	}
	var args []string
	if *given != "" {
		args = append(args, "--memory-budget="+*given)
	}
	if err := pair.StartProxy(ctx, "pods", args...); err != nil {
		return err
	}
	if err := rig.Sleep(ctx, *settled); err != nil {
		return err
	}
	stop := rig.WatchPeak(pair.Spillway.Pid, pair.Cgroup)
	defer stop()
	all, took, err := h.run(ctx, pair.Spillway, func() { profile(ctx, pair, h) })
	if err != nil {
		return err
	}
	peak, err := stop()
	if err != nil {
		return err
	}
	mib := func(n int64) float64 { return float64(n) / (1 << 20) }
	limit := rig.AtMost(float64(*budget), float64(*budget)/2)
	scores.Figure(h.name+": peak of RSS and kernel TCP memory", "", "%.0f MiB", []float64{mib(peak.Total)}, nil, limit)
	scores.Note(h.name+": at that moment", "%.0f MiB of RSS, %.0f MiB of TCP, of %d looks", mib(peak.RSS), mib(peak.TCP),
		peak.Looks)
	if peak.Own > 0 {
		scores.Note(h.name+": most TCP memory of the proxy's own sockets", "%.0f MiB", mib(peak.Own))
	}
	scores.Note(h.name+": all are served", "%s", told(all, took))
	const refusals, ends, steps = "spillway_flowcontrol_rejected_requests_total", "spillway_watch_terminations_total",
		"spillway_memory_degradations_total"
	metrics, err := pair.Proxy.Metrics().Read(ctx, refusals, ends, steps)
	if err != nil {
		return err
	}
	rig.Say("%s: the proxy refused %.0f, ended watches %v, gave up %.0f things", h.name, metrics.Sum(refusals),
		metrics.By(ends, "reason"), metrics.Sum(steps))
	if why := causes(all); why != "" {
		scores.Note(h.name+": why streams were cut", "%s", why)
	}
	return nil
}

// beside measures a herd that reconnects to kube-apiserver.
func beside(ctx context.Context, pair *rig.Pair, scores *rig.Scores, h reconnectingClients) error {
	if err := pair.Settle(ctx); err != nil {
		return err
	}
	before, err := rig.UsageOf(pair.APIServer.Pid)
	if err != nil {
		return err
	}
	stop := rig.WatchPeak(pair.APIServer.Pid, nil)
	defer stop()
	all, took, err := h.run(ctx, pair.APIServer, func() {})
	if err != nil {
		return err
	}
	peak, err := stop()
	if err != nil {
		return err
	}
	scores.Figure("kube-apiserver, "+h.name+": peak of RSS and kernel TCP memory", "", "%.0f MiB", nil,
		[]float64{float64(peak.Total) / (1 << 20)}, rig.NoLimit)
	scores.Note("kube-apiserver, "+h.name, "RSS was %d MiB before; %s", before.RSS>>20, told(all, took))
	return nil
}

// run lets all clients come at once and returns when each has its state. middle is called when half
// of them have.
func (h reconnectingClients) run(
	ctx context.Context,
	server rig.Server,
	middle func(),
) ([]*client, time.Duration, error) {
	all := make([]*client, h.n)
	defer func() {
		for _, c := range all {
			if c != nil {
				c.close()
			}
		}
	}()
	began := time.Now()
	half := make(chan struct{}, h.n)
	group, ctx := errgroup.WithContext(ctx)
	for i := range all {
		all[i] = h.client(server, i)
		group.Go(func() error {
			// In the same second.
			if err := rig.Sleep(ctx, rand.N(time.Second)); err != nil {
				return err
			}
			err := all[i].sync(ctx, began)
			half <- struct{}{}
			return err
		})
	}
	group.Go(func() error {
		for range h.n / 2 {
			select {
			case <-half:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		middle()
		return nil
	})
	err := group.Wait()
	return all, time.Since(began), err
}

func (h reconnectingClients) client(server rig.Server, i int) *client {
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {"0"},
		"timeoutSeconds": {"3600"}}
	c := &client{server: server, source: net.IPv4(127, 1, byte(i/250), byte(1+i%250)), gzip: h.gzip, want: *pods}
	if i < h.part {
		c.want = *pods / *nodes
		query.Set("fieldSelector", "spec.nodeName="+rig.NodeName(i%*nodes))
	}
	if h.list {
		c.want++ // the bookmark that ends the state
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
		query.Del("resourceVersion")
	}
	c.target = rig.AllPods + "?" + query.Encode()
	return c
}

// told says how a herd was served.
func told(all []*client, took time.Duration) string {
	var refused, cut int
	var bytes int64
	times := make([]time.Duration, 0, len(all))
	for _, c := range all {
		refused += c.refused
		cut += len(c.cuts)
		bytes += c.bytes
		times = append(times, c.synced)
	}
	slices.Sort(times)
	return fmt.Sprintf("within %s, half of them within %s; %d MB; refused %d times with Retry-After, cut %d times",
		took.Round(100*time.Millisecond), times[len(times)/2].Round(100*time.Millisecond), bytes/1e6, refused, cut)
}

// causes says how the clients that were cut were, and how many of them each way.
func causes(all []*client) string {
	counts := map[string]int{}
	for _, c := range all {
		for _, err := range c.cuts {
			counts[withoutAddresses(err)]++
		}
	}
	var told []string
	for _, cause := range slices.Sorted(maps.Keys(counts)) {
		told = append(told, fmt.Sprintf("%d × %s", counts[cause], cause))
	}
	return strings.Join(told, "; ")
}

// withoutAddresses is an error's text, but for which connection it was.
func withoutAddresses(err error) string {
	var network *net.OpError
	if errors.As(err, &network) {
		return network.Op + ": " + network.Err.Error()
	}
	return err.Error()
}

// profile writes a heap profile.
func profile(ctx context.Context, pair *rig.Pair, h reconnectingClients) {
	if *heap == "" {
		return
	}
	for _, kind := range []string{"heap", "goroutine"} {
		body, err := rig.Get(ctx, http.DefaultClient, pair.Proxy.MetricsURL+"/debug/pprof/"+kind)
		if err != nil {
			rig.Say("no profile: %v", err)
			return
		}
		text, err := io.ReadAll(body)
		body.Close()
		path := fmt.Sprintf("%s%s.%s", *heap, strings.ReplaceAll(h.name, " ", "-"), kind)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		rig.Say("profile %s: %v", path, err)
	}
}
