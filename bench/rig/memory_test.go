package rig

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"runtime"
	"strings"
	"testing"
)

// HeapAlive counts what is alive, without what counting takes.
func TestHeapAlive(t *testing.T) {
	rate := runtime.MemProfileRate
	defer func() { runtime.MemProfileRate = rate }()
	runtime.MemProfileRate = 1 // which makes the profile large
	server := httptest.NewServer(http.HandlerFunc(pprof.Index))
	defer server.Close()
	read := func() int64 {
		t.Helper()
		var alive int64
		for range 2 {
			var err error
			if alive, err = heapAlive(context.Background(), server.URL); err != nil {
				t.Fatal(err)
			}
		}
		return alive
	}
	const large, profile = 64 << 20, 256 << 10 // making this profile takes at least twice that
	without := read()
	runtime.GC()
	var itself runtime.MemStats
	runtime.ReadMemStats(&itself)
	if more := without - int64(itself.HeapAlloc); more > profile { // #nosec G115 -- less than 8 EiB
		t.Errorf("%d bytes more are said to be alive than are", more)
	}
	kept := make([]byte, large)
	if with := read(); max(with-without-large, large-(with-without)) > profile {
		t.Errorf("%d bytes more are alive, with %d more", with-without, len(kept))
	}
	runtime.KeepAlive(kept)
}

// What is no such profile is refused.
func TestHeapAliveOfNoProfile(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	if alive, err := heapAlive(context.Background(), server.URL); err == nil {
		t.Errorf("%d bytes of a server without profiles", alive)
	}
	empty := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer empty.Close()
	if _, err := heapAlive(context.Background(), empty.URL); err == nil || !strings.Contains(err.Error(), empty.URL) {
		t.Errorf("%v; want an error that names %s", err, empty.URL)
	}
}
