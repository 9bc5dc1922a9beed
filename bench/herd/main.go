// Command herd compares what happens when many informers start at the same moment, as after the
// restart of a server or a network that was gone: what it costs Spillway and kube-apiserver, and
// how long it takes until all are synced.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"spillway/bench/rig"
)

var (
	informers = flag.Int("informers", 200, "informers that start at once")
	pods      = flag.Int("pods", 500, "pods that each of them takes")
	rounds    = flag.Int("rounds", 3, "how often each figure is measured; the median counts")
)

func main() { rig.Measure("herd", run) }

func run(ctx context.Context, scores *rig.Scores) error {
	pair, err := rig.StartPair(ctx, "pods")
	if err != nil {
		return err
	}
	defer pair.Stop()
	if err := pair.CreatePods(ctx, 0, *pods, 200); err != nil {
		return err
	}
	for _, way := range []struct {
		name string
		open func(token string) *http.Client
		sync func(ctx context.Context, client *http.Client, base string) (int, error)
	}{
		{"watch-list", rig.NewTLSClient, watchList}, {"watch-list, gzip", rig.NewGzipClient, watchList},
		{"LIST, gzip", rig.NewTLSClient, list},
	} {
		costs, times, again := map[string][]float64{}, map[string][]float64{}, map[string]int{}
		for range *rounds {
			for _, server := range []rig.Server{pair.Spillway, pair.APIServer} {
				cpu, took, cut, err := stampede(ctx, server, way.open, way.sync)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", way.name, server.Name, err)
				}
				rig.Say("%s: %s: %s of CPU, %s, %d cut", way.name, server.Name, cpu, took, cut)
				again[server.Name] += cut
				costs[server.Name] = append(costs[server.Name], cpu.Seconds())
				times[server.Name] = append(times[server.Name], took.Seconds())
			}
		}
		what := fmt.Sprintf("%d informers of %d pods by %s: ", *informers, *pods, way.name)
		scores.Ratio(what+"CPU", rig.Seconds, costs[pair.Spillway.Name], costs[pair.APIServer.Name], rig.NoLimit)
		for server, n := range again {
			if n > 0 {
				scores.Note(what+"cut", "%s ended %d answers before they were complete in %d rounds; the client retried these",
					server, n, *rounds)
			}
		}
		scores.Ratio(what+"until all are synced", rig.Seconds, times[pair.Spillway.Name], times[pair.APIServer.Name],
			rig.NoLimit)
	}
	return nil
}

// triesMost is how often an informer tries: an overloaded server ends answers early, and clients
// send the request again.
const triesMost = 20

// stampede starts all informers at once and returns when they are synced, and how many answers
// ended before they were complete.
func stampede(ctx context.Context, server rig.Server, open func(token string) *http.Client,
	sync func(context.Context, *http.Client, string) (int, error)) (cpu, took time.Duration, cut int, err error) {
	before, err := server.CPU()
	if err != nil {
		return 0, 0, 0, err
	}
	var again atomic.Int64
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range *informers {
		group.Go(func() error {
			client := open(server.Token)
			defer client.CloseIdleConnections()
			n, err := sync(ctx, client, server.URL)
			for tries := 1; tries < triesMost && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)); tries++ {
				again.Add(1)
				n, err = sync(ctx, client, server.URL)
			}
			if err == nil && n < *pods {
				err = fmt.Errorf("an informer has %d pods of %d", n, *pods)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, 0, 0, err
	}
	took = time.Since(began)
	after, err := server.CPU()
	return after - before, took, int(again.Load()), err
}

// watchList is how informers start that stream (W-1): initial events, up to the bookmark that ends
// them. It returns how many there were.
func watchList(ctx context.Context, client *http.Client, base string) (int, error) {
	watch, err := rig.OpenWatch(ctx, client, base+rig.AllPods, url.Values{
		"allowWatchBookmarks": {"true"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
		"timeoutSeconds": {"300"},
	})
	if err != nil {
		return 0, err
	}
	defer watch.Close()
	for n := 0; ; n++ {
		event, err := watch.Next()
		if err != nil || event.InitialEnd() {
			return n, err
		}
	}
}

// list is how others start: a LIST at resourceVersion 0, compressed as client-go has it.
func list(ctx context.Context, client *http.Client, base string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+rig.AllPods+"?resourceVersion=0", nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Accept-Encoding", "gzip")
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	size, err := io.Copy(io.Discard, response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || size == 0) {
		err = fmt.Errorf("answered %s, %d bytes", response.Status, size)
	}
	return *pods, err // which are not counted: that takes more than the LIST
}
