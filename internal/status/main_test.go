package status

import (
	"flag"
	"fmt"
	"time"
)

var update = flag.Bool("update", false, "rewrite testdata from what the code does now")

// noon is when all reports of these tests are made.
var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// sample is a report in which everything is there.
func sample() *Report {
	event := noon.Add(-90 * time.Second)
	return &Report{
		At: noon, Version: "v1.2.3", Started: noon.Add(-3 * time.Hour), UptimeSeconds: 3 * 3600,
		Upstream: Upstream{Host: "https://api:6443", StaleResources: []string{"pods"}, StateAgeSeconds: 12},
		Memory:   Memory{LimitBytes: 256 << 20, InUseBytes: 200 << 20, Steps: []string{"derived"}},
		Files: []*File{
			{File: "/var/run/ca.crt", Use: "the API server's certificate authority", Since: noon.Add(-time.Hour),
				Changes: 2, Expires: new(noon.Add(72 * time.Hour))},
			{File: "/etc/spillway/tls.crt", Use: "TLS certificate", Since: noon.Add(-3 * time.Hour),
				Expires: new(noon.Add(5 * time.Hour))},
		},
		Resources: []*Resource{
			{Resource: "pods", Version: "v1", Synced: true, ResourceVersion: "1234", Objects: 5000, ObjectBytes: 45 << 20,
				Since:             noon.Add(-time.Hour),
				ContactAgeSeconds: 12, StateAgeSeconds: 12, HistoryEvents: 100, HistorySpanSeconds: 75, Watches: 2, Feeds: 1,
				Lists: 1, Failures: 3, Error: "connection refused",
				State: "resuming", StateCause: "connection refused", StateSince: noon.Add(-12 * time.Second), NextRetrySeconds: 4},
			{Resource: "leases.coordination.k8s.io", Version: "v1", ResourceVersion: "0", Since: noon,
				State: "starting", StateSince: noon},
			{Resource: "nodes", Version: "v1", ResourceVersion: "0", Since: noon, State: "refused",
				StateCause: `nodes is forbidden: User "spillway" cannot list resource "nodes"`, StateSince: noon,
				NextRetrySeconds: 60},
		},
		Watches: Watches{Total: 2, Items: []*Watch{
			{ID: 1, User: "kubelet", UserAgent: "kubelet/v1.37", Peer: "10.0.0.1:4711", Protocol: "HTTP/2", Encoding: "protobuf",
				Resource: "pods", Version: "v1",
				FieldSelector: "spec.nodeName=n1", Phase: "live", Began: noon.Add(-time.Hour), AgeSeconds: 3600,
				DeadlineSeconds: 60, Bytes: 1 << 20, LastEvent: &event},
			{ID: 2, User: "slow", UserAgent: "curl/8", Peer: "10.0.0.2:4711", Protocol: "HTTP/1.1", Encoding: "json",
				Resource: "pods", Version: "v1",
				Namespace: "default", Name: "web", LabelSelector: "app=web", Phase: "live", Began: noon.Add(-time.Minute),
				AgeSeconds: 60, DeadlineSeconds: 60,
				LagEvents: 1234, LagSeconds: 17.5, UnsentBytes: 4096, BlockedSeconds: 17.5, Bytes: 1 << 10},
		}},
		Ended: map[string]uint64{"timeout": 5, "slow_client_stalled": 1},
		Evictions: []*Eviction{{
			At: noon.Add(-time.Minute), User: "dead", UserAgent: "python", Peer: "10.0.0.3:1", Resource: "pods", AgeSeconds: 300,
			Bytes: 77,
		}},
		Rejections: []*Rejection{
			{At: noon.Add(-time.Second), Since: noon.Add(-time.Hour), User: "system:serviceaccount:ci:bot", Count: 12345,
				Limit: "passthrough_requests", Reason: "user-rate"},
			{At: noon.Add(-time.Minute), Since: noon.Add(-time.Minute), Peer: "10.0.0.4", Count: 1, Limit: "watches",
				Reason: "concurrency-limit"},
		},
	}
}

// crowd is a report with n watches: the i-th lags i events, and is watched by user i.
func crowd(n int) *Report {
	r := sample()
	r.Watches = Watches{Total: n}
	for i := range n {
		r.Watches.Items = append(r.Watches.Items, &Watch{ID: uint64(i + 1), User: fmt.Sprintf("user-%04d", i), Phase: "live",
			LagEvents: uint64(i)})
	}
	return r
}
