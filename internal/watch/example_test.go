package watch_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"spillway/internal/cache"
	"spillway/internal/clientconn"
	"spillway/internal/fanout"
	"spillway/internal/flowcontrol"
	"spillway/internal/freshness"
	"spillway/internal/object"
	"spillway/internal/plan"
	"spillway/internal/source"
	"spillway/internal/source/sourcetest"
	"spillway/internal/watch"
)

// A watch is two calls: Open fixes its place in history, and Serve delivers it until it ends.
func Example() {
	pod := func(name string, rv int) *object.Object {
		o, err := sourcetest.Pods.Parse(fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,
			"namespace":"default","resourceVersion":"%d"}}`, name, rv))
		if err != nil {
			panic(err)
		}
		return o
	}
	mirror := cache.New(sourcetest.Pods, sourcetest.KeepAll, time.Now)
	_ = mirror.Replace([]*object.Object{pod("a", 3)}, 5)
	of := &source.Source{Hub: fanout.NewHub(mirror), Fresh: freshness.New(mirror, sourcetest.Unreachable{}),
		Codec: sourcetest.NewCodec(sourcetest.Pods)}
	ctx, stop := context.WithCancel(context.Background())
	dispatched := make(chan error)
	go func() { dispatched <- of.Hub.Run(ctx) }()
	streams, end := context.WithCancelCause(context.Background())
	manager := watch.NewManager(watch.Options{Base: streams, StallTimeout: time.Minute, CPU: clientconn.NewCPULimiter(1),
		Eviction: &clientconn.EvictionPolicy{}, Metrics: watch.NewStreamMetrics(nil), Log: zap.NewNop(), Goroutines: true})

	planner := plan.Planner{Catalog: sourcetest.Resources{sourcetest.Pods.GVR: of}}
	candidate, _ := planner.Consider(plan.Request{Method: http.MethodGet, Path: "/api/v1/pods",
		RawQuery: "watch=1&resourceVersion=0&timeoutSeconds=60", Plain: true, Chunked: true})
	stays := func(func()) (stop func()) { return func() {} } // a client that does not leave while it waits
	st, refusal := manager.Open(stays, planner.Decide(candidate), watch.StreamOptions{}, flowcontrol.Flow{})
	if refusal != nil {
		panic(refusal.Answer.Code)
	}
	_ = mirror.Add(pod("b", 6)) // after the watch began, and before its client has a byte
	server, client := net.Pipe()
	sink := &watch.ConnSink{Conn: server, Head: watch.Head(st, func(func(key, value string)) {}, ""),
		Ended: func(reason watch.EndReason, _ bool) { _ = server.Close() }}
	go st.Serve(sink, func(take, _ func()) { take() })

	answer, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		panic(err)
	}
	events := json.NewDecoder(answer.Body)
	for range 2 {
		var e struct {
			Type   string
			Object struct {
				Metadata struct{ Name, ResourceVersion string }
			}
		}
		if err := events.Decode(&e); err != nil {
			panic(err)
		}
		fmt.Println(e.Type, e.Object.Metadata.Name, "at", e.Object.Metadata.ResourceVersion)
	}
	st.Stop(watch.EndDrain)
	_, err = io.Copy(io.Discard, answer.Body)
	fmt.Println("ended whole:", err == nil)
	_ = answer.Body.Close()
	end(nil)
	stop()
	<-dispatched
	// Output:
	// ADDED a at 3
	// ADDED b at 6
	// ended whole: true
}
