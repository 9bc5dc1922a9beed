package serve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
	internal "k8s.io/apiserver/pkg/apis/audit"

	"spillway/internal/audit"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/source/sourcetest"
)

// BenchmarkList is what a LIST from memory costs but for its socket: of a few objects, and of so
// many that its answer is a large one.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{10, 3000} {
		b.Run(fmt.Sprint("objects=", n), func(b *testing.B) {
			benchmarkList(b, listAnswerer(b, n, nil))
		})
	}
}

// BenchmarkListOnRecord is the same with an audit log that writes nowhere, by what is put on
// record.
func BenchmarkListOnRecord(b *testing.B) {
	for _, level := range []internal.Level{internal.LevelNone, internal.LevelMetadata, internal.LevelRequestResponse} {
		b.Run(fmt.Sprint("level=", level), func(b *testing.B) {
			log := audit.New(audit.Options{Policy: &audit.Policy{Rules: []internal.PolicyRule{{Level: level}}}, Out: io.Discard,
				Log: zap.NewNop()})
			b.Cleanup(func() { _ = log.Close() })
			benchmarkList(b, listAnswerer(b, 10, log))
		})
	}
}

func benchmarkList(b *testing.B, answer func() int) {
	b.Helper()
	size := answer()
	b.ReportAllocs()
	for b.Loop() {
		answer()
	}
	b.SetBytes(int64(size))
}

// listAnswerer is what answers a LIST of n pods, and tells how many bytes its body has. It is on
// record if there is one.
func listAnswerer(b *testing.B, n int, record *audit.Logger) func() int {
	b.Helper()
	var pods []string
	for i := range n {
		pods = append(pods, fmt.Sprintf("a/pod-%d %d app=a-label-that-is-not-short", i, i+1))
	}
	source := sourcetest.New(b, sourcetest.Pods, sourcetest.NewOracle(uint64(n)), uint64(n), pods...)
	forwarder := passthrough.NewForwarder(passthrough.ForwarderOptions{Base: &url.URL{Scheme: "http", Host: "localhost"}})
	server := New(Options{
		Catalog: sourcetest.Resources{sourcetest.Pods.GVR: source}, Forwarder: forwarder, StallTimeout: time.Minute,
		Audit: record, Metrics: NewMetrics(nil), Log: zap.NewNop(),
		Limiter: flowcontrol.NewLimiter(flowcontrol.Limits{Watches: 1000, WatchesPerUser: 500, ListBytes: 1 << 30},
			flowcontrol.DefaultQueue, nil),
	})
	b.Cleanup(func() { _ = server.Close(b.Context()) })
	handler := server.newListenerServer(ListenerConfig{AnswerAll: true}).Handler()
	out := bufio.NewWriter(io.Discard)
	return func() int {
		var ctx fasthttp.RequestCtx
		ctx.Init(&fasthttp.Request{}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, nil)
		ctx.Request.SetRequestURI("/api/v1/namespaces/a/pods?resourceVersion=0")
		ctx.Request.SetHost("localhost")
		ctx.Request.Header.SetProtocol("HTTP/1.1")
		handler(&ctx)
		size := ctx.Response.Header.ContentLength()
		if code := ctx.Response.StatusCode(); code != fasthttp.StatusOK {
			b.Fatalf("answered %d: %s", code, ctx.Response.Body())
		}
		if err := ctx.Response.Write(out); err != nil {
			b.Fatal(err)
		}
		return size
	}
}
