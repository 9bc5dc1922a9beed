// Command list compares what a LIST of many pods costs Spillway and kube-apiserver, in the ways in
// which clients request it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"

	"spillway/bench/rig"
)

var (
	pods   = flag.Int("pods", 5000, "pods")
	rounds = flag.Int("rounds", 3, "how often each figure is measured; the median counts")
	lists  = flag.Int("lists", 5, "LISTs in each measurement, at least")
)

const (
	nodes    = 200
	jsonType = "application/json"
	partial  = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// kind is a way to request it. All are at resourceVersion 0.
type kind struct {
	what, accept, query string
	gzip, http2         bool
	changed             bool // a hundredth of the pods has changed since the last LIST
	limit               rig.Limit
}

var kinds = []kind{
	{what: "JSON", accept: jsonType, limit: rig.AtMost(0.15, 0.08)},
	{what: "JSON, gzip", accept: jsonType, gzip: true, limit: rig.AtMost(0.03, 0.01)},
	{what: "JSON, gzip, 1 % changed since", accept: jsonType, gzip: true, changed: true, limit: rig.AtMost(0.08, 0.03)},
	{what: "JSON, HTTP/2", accept: jsonType, http2: true},
	{what: "JSON, gzip, HTTP/2", accept: jsonType, gzip: true, http2: true},
	{what: "protobuf", accept: "application/vnd.kubernetes.protobuf", limit: rig.AtMost(0.3, 0.15)},
	{what: "metadata alone, JSON", accept: jsonType + partial, limit: rig.AtMost(0.2, 0.08)},
	{what: "metadata alone, protobuf", accept: "application/vnd.kubernetes.protobuf" + partial,
		limit: rig.AtMost(0.2, 0.08)},
	// as client-go requests it
	{what: "metadata alone, protobuf, gzip", accept: "application/vnd.kubernetes.protobuf" + partial, gzip: true},
	{what: "by label, 1 of 9", accept: jsonType, query: "&labelSelector=slice%3D4", limit: rig.AtMost(0.3, 0.1)},
	{what: "by spec.nodeName, 1 of 200", accept: jsonType, query: "&fieldSelector=spec.nodeName%3D" + rig.NodeName(17),
		limit: rig.AtMost(0.3, 0.1)},
}

func main() { rig.Measure("list", run) }

func run(ctx context.Context, scores *rig.Scores) error {
	pair, err := rig.StartPair(ctx, "pods")
	if err != nil {
		return err
	}
	defer pair.Stop()
	if err := pair.CreatePods(ctx, 0, *pods, nodes); err != nil {
		return err
	}
	paths := make([]string, *pods)
	for i := range paths {
		paths[i] = rig.PodPath(i)
	}
	s := &show{Pair: pair, client: rig.NewTLSClient(pair.APIServer.Token),
		client2: rig.NewHTTP2Client(pair.APIServer.Token), writer: pair.NewWriter(paths)}
	defer s.client.CloseIdleConnections()
	defer s.client2.CloseIdleConnections()
	for _, k := range kinds {
		if err := s.compare(ctx, scores, k); err != nil {
			return fmt.Errorf("%s: %w", k.what, err)
		}
	}
	return nil
}

// show is one run.
type show struct {
	*rig.Pair
	client  *http.Client
	client2 *http.Client // over HTTP/2
	writer  *rig.Writer
}

func (s *show) compare(ctx context.Context, scores *rig.Scores, k kind) error {
	var spillway, apiserver []float64
	var ours, theirs answer
	for range *rounds {
		for _, side := range []struct {
			server rig.Server
			costs  *[]float64
			answer *answer
		}{{s.Spillway, &spillway, &ours}, {s.APIServer, &apiserver, &theirs}} {
			cost, last, err := s.measure(ctx, side.server, k)
			if err != nil {
				return fmt.Errorf("%s: %w", side.server.Name, err)
			}
			*side.costs, *side.answer = append(*side.costs, cost), last
		}
	}
	what := fmt.Sprintf("LIST of %d pods, %s", *pods, k.what)
	if ours.kind != theirs.kind {
		scores.Miss(what, "answered with %s %s, kube-apiserver with %s %s", ours.kind.content, ours.kind.encoding,
			theirs.kind.content, theirs.kind.encoding)
		return nil
	}
	scores.Ratio(fmt.Sprintf("%s (%.1f, %.1f MB)", what, float64(ours.bytes)/1e6, float64(theirs.bytes)/1e6), rig.Millis,
		spillway, apiserver, k.limit)
	return nil
}

// answer is what a LIST was answered with.
type answer struct {
	bytes int64
	kind  struct{ content, encoding string }
}

const (
	least = 500 * time.Millisecond // of a measurement: the small LISTs need many
	most  = 500                    // LISTs in a measurement
)

// measure returns the CPU of a server per LIST, in milliseconds.
func (s *show) measure(ctx context.Context, server rig.Server, k kind) (float64, answer, error) {
	// One before, which makes what is made once.
	last, err := s.list(ctx, server, k)
	if err != nil {
		return 0, last, err
	}
	used, n := time.Duration(0), 0
	for began := time.Now(); n < *lists || time.Since(began) < least && n < most && !k.changed; n++ {
		if k.changed {
			if err := s.change(ctx, server); err != nil {
				return 0, last, err
			}
		}
		before, err := server.CPU()
		if err != nil {
			return 0, last, err
		}
		if last, err = s.list(ctx, server, k); err != nil {
			return 0, last, err
		}
		after, err := server.CPU()
		if err != nil {
			return 0, last, err
		}
		used += after - before
	}
	cost := used.Seconds() * 1e3 / float64(n)
	rig.Say("%s: %s: %.2f ms (%d LISTs of %d bytes)", k.what, server.Name, cost, n, last.bytes)
	return cost, last, nil
}

// change changes a hundredth of the pods, spread over all, and returns when the server knows.
func (s *show) change(ctx context.Context, server rig.Server) error {
	last, err := s.writer.WriteSpread(ctx, max(*pods/100, 1))
	if err != nil {
		return err
	}
	var failed error
	arrived := rig.Eventually(ctx, 10*time.Second, 10*time.Millisecond, func() bool {
		newest, err := server.Newest(ctx, rig.AllPods)
		failed = err
		return err != nil || newest >= last
	})
	if failed == nil && !arrived {
		return fmt.Errorf("what was written has not arrived at %s", server.Name)
	}
	return failed
}

// list sends one LIST and reads the answer to its end.
func (s *show) list(ctx context.Context, server rig.Server, k kind) (answer, error) {
	var a answer
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+rig.AllPods+"?resourceVersion=0"+k.query,
		nil)
	if err != nil {
		return a, err
	}
	request.Header.Set("Accept", k.accept)
	if k.gzip {
		request.Header.Set("Accept-Encoding", "gzip")
	}
	client := s.client
	if k.http2 {
		client = s.client2
	}
	response, err := client.Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return a, fmt.Errorf("answered %s", response.Status)
	}
	a.bytes, err = io.Copy(io.Discard, response.Body)
	a.kind.content, a.kind.encoding = response.Header.Get("Content-Type"), response.Header.Get("Content-Encoding")
	return a, err
}
