// Command stalled shows what a client costs that opens a watch and stops reading: no growing
// memory, no delay of other clients, and in the end its own connection, for a reason that metric
// and log name.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"spillway/bench/rig"
)

var only = flag.String("only", "", "play one part only: memory, delivery or eviction")

func main() { rig.Main("stalled", run) }

// show is one run.
type show struct {
	report     *rig.Report
	kubeconfig string
	writer     *writer
	direct     *http.Client // of the API server
	apiserver  string
}

func run(ctx context.Context, r *rig.Report) error {
	cp, err := rig.StartControlPlane(ctx)
	if err != nil {
		return err
	}
	defer cp.Stop()
	w, err := newWriter(ctx, cp.Config(admin))
	if err != nil {
		return err
	}
	direct, err := rest.HTTPClientFor(cp.Config(admin))
	if err != nil {
		return err
	}
	s := &show{report: r, kubeconfig: cp.Kubeconfig(admin), writer: w, direct: direct, apiserver: cp.URL()}
	for _, part := range []struct {
		name string
		play func(context.Context) error
	}{{"memory", s.memory}, {"delivery", s.delivery}, {"eviction", s.eviction}} {
		if *only != "" && *only != part.name {
			continue
		}
		rig.Say("%s", part.name)
		if err := part.play(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// stallMany opens n watches whose clients do not read.
func stallMany(ctx context.Context, base string, n, window int) ([]*rig.StalledClient, error) {
	var all []*rig.StalledClient
	for range n {
		c, err := rig.Stall(ctx, base, watchPath+"?watch=true&resourceVersion=0&allowWatchBookmarks=true", window)
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func closeAll(clients []*rig.StalledClient) {
	for _, c := range clients {
		c.Close()
	}
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

func count(n int) string { return fmt.Sprint(n) }

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
