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
)

// BenchmarkList is what a LIST from memory costs but for its socket: of a few objects, and of so many that its answer is a large one.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{10, 3000} {
		b.Run(fmt.Sprint("objects=", n), func(b *testing.B) {
			answer := listAnswerer(b, n)
			size := answer()
			b.ReportAllocs()
			for b.Loop() {
				answer()
			}
			b.SetBytes(int64(size))
		})
	}
}

// listAnswerer is what answers a LIST of n pods, and tells how many bytes its body has.
func listAnswerer(b *testing.B, n int) func() int {
	b.Helper()
	var pods []string
	for i := range n {
		pods = append(pods, fmt.Sprintf("a/pod-%d %d app=a-label-that-is-not-short", i, i+1))
	}
	source := newSource(b, podResource, newOracle(uint64(n)), uint64(n), pods...)
	forwarder := NewForwarder(ForwarderOptions{Base: &url.URL{Scheme: "http", Host: "localhost"}})
	server := New(Options{
		Catalog: fixed{podResource.GVR: source}, Forwarder: forwarder, StallTimeout: time.Minute, Metrics: NewMetrics(nil), Log: zap.NewNop(),
		Limiter: NewLimiter(Limits{Watches: 1000, WatchesPerUser: 500, ListBytes: 1 << 30}, nil),
	})
	b.Cleanup(func() { _ = server.Close(b.Context()) })
	handler := server.fastHandler(&fasthttp.Server{}, Front{AnswerAll: true})
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
