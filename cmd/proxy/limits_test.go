package main

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"spillway/internal/config"
	"spillway/internal/fakeapiserver"
	"spillway/internal/flowcontrol"
)

// While everything is at its limit, health and metrics are served and show it; requests for which
// there is room are answered.
func TestRunAtItsLimits(t *testing.T) {
	up := secureUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	p := running(t, up, func(o *config.Settings) {
		o.Limits.Watches, o.Limits.QPSPerUser, o.Limits.BurstPerUser = 2, 0.001, 1
	})
	p.ready()
	p.watching(p.plain, "")
	p.watching(p.tls, "&resourceVersion=0")
	for _, url := range []string{p.plain, p.tls} {
		if code, body := p.get(url + "/api/v1/configmaps?watch=1&resourceVersion=0"); code != http.StatusTooManyRequests {
			t.Errorf("a third watch: %d %s", code, body)
		}
		if code, body := p.get(url + "/api/v1/configmaps?resourceVersion=0"); code != http.StatusOK {
			t.Errorf("a list: %d %s", code, body)
		}
	}
	first, _ := p.get(p.plain + "/api/v1/pods")
	second, _ := p.get(p.plain + "/api/v1/pods")
	if first != http.StatusOK || second != http.StatusTooManyRequests {
		t.Errorf("passed through: %d, and then %d", first, second)
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body := p.get(p.metrics + path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	_, metrics := p.get(p.metrics + "/metrics")
	for _, want := range []string{
		`spillway_flowcontrol_rejected_requests_total{limit="watches",reason="concurrency-limit"} 2`,
		`spillway_flowcontrol_rejected_requests_total{limit="passthrough",reason="user-rate"} 1`,
		`spillway_flowcontrol_current_watches 2`, `spillway_flowcontrol_limit_watches 2`,
		`spillway_flowcontrol_limit_list_bytes 1.073741824e+09`,
		`spillway_flowcontrol_current_inqueue_requests{limit="list_bytes"} 0`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// The server gets the limits that flags and files set.
func TestLimitSettings(t *testing.T) {
	f := func(want flowcontrol.Limits, args ...string) {
		t.Helper()
		got := start(nil, args...)
		if got.options == nil {
			t.Fatalf("%v: %s", args, got.stderr)
		}
		got.options.ApplyBudget(0)
		if l := serverLimits(got.options.Limits); l != want {
			t.Errorf("%v:\ngot  %+v\nwant %+v", args, l, want)
		}
	}
	f(flowcontrol.Limits{Watches: 100_000, WatchesPerUser: 50_000, WatchesReserve: 12_500, ListBytes: 1 << 30,
		HeaderBytes: 64 << 20, SelectorTerms: 8 * 131072, SelectorTermsPerUser: 131072, PassThrough: 600,
		PassThroughPerUser: 300, PassThroughBurst: 1})
	file := writeFile(t, "limits.yaml", "apiVersion: config.spillway.example.com/v1alpha1\nkind: SpillwayConfiguration\n"+
		"maxPassthroughQPSPerUser: 2.5\nmaxListBytesInFlight: 64Mi\n")
	f(flowcontrol.Limits{WatchesPerUser: 7, ListBytes: 64 << 20, HeaderBytes: 64 << 20, SelectorTerms: 72,
		SelectorTermsPerUser: 9, PassThroughQPS: 2.5, PassThroughBurst: 5},
		"--config="+file, "--max-selector-terms-per-user=9", "--max-watches=0", "--max-watches-per-user=7",
		"--max-passthrough-requests=0", "--max-passthrough-requests-per-user=0")
	f(flowcontrol.Limits{PassThroughQPS: 10, PassThroughBurst: 3}, "--max-watches=0", "--max-watches-per-user=0",
		"--max-selector-terms-per-user=0", "--max-list-bytes-in-flight=0", "--max-large-header-bytes=0",
		"--max-passthrough-requests=0", "--max-passthrough-requests-per-user=0", "--max-passthrough-qps-per-user=10",
		"--max-passthrough-burst-per-user=3")
}

// The line that announces the limits has every one of them.
func TestEveryLimitIsAnnounced(t *testing.T) {
	o := config.New()
	o.MaxConnections, o.MaxConnectionsPerPeer = 1, 2
	core, logs := observer.New(zap.InfoLevel)
	announceLimits(flowcontrol.Limits{
		Watches: 3, WatchesPerUser: 4, WatchesReserve: 5, ListBytes: 6, BodyBytes: 7, SelectorTerms: 8,
		SelectorTermsPerUser: 9, HeaderBytes: 10, PassThrough: 11, PassThroughPerUser: 12, PassThroughQPS: 13,
		PassThroughBurst: 14,
	}, o, zap.New(core))
	want := map[string]any{
		"max-connections": int64(1), "max-connections-per-peer": int64(2), "max-watches": int64(3),
		"max-watches-per-user": int64(4), "watchesReserve": int64(5), "max-list-bytes-in-flight": int64(6),
		"bodyBytes": int64(7), "selectorTerms": int64(8), "max-selector-terms-per-user": int64(9),
		"max-large-header-bytes": int64(10), "max-passthrough-requests": int64(11),
		"max-passthrough-requests-per-user": int64(12), "max-passthrough-qps-per-user": 13.0,
		"max-passthrough-burst-per-user": int64(14),
	}
	if got := logs.All()[0].ContextMap(); !maps.Equal(got, want) {
		t.Errorf("announced\n%v, want\n%v", got, want)
	}
}
