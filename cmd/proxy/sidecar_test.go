package main

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/zap"

	"spillway/internal/config"
)

// Outside of a pod there is nothing to copy.
func TestSidecarNeedsAnAccount(t *testing.T) {
	o := config.New()
	o.SidecarDir = t.TempDir()
	_, err := newPodFiles(o, zap.NewNop())
	want := "--sidecar-dir=" + o.SidecarDir +
		": cannot be filled: /var/run/secrets/kubernetes.io/serviceaccount/token: no such file or directory"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v; want %s", err, want)
	}
}

// A sidecar's log does not say that it serves metrics: off loopback, it refuses them.
func TestTheLogSaysWhatTheMetricsListenerServes(t *testing.T) {
	for _, c := range []struct{ sidecarDir, listen, at, want string }{
		{"", ":9464", "[::]:9464", "serving health and metrics"},
		{"", "127.0.0.1:9464", "127.0.0.1:9464", "serving health and metrics"},
		{"/run/spillway", ":26464", "[::]:26464", "serving health"},
		{"/run/spillway", "127.0.0.1:26464", "127.0.0.1:26464", "serving health and metrics"},
	} {
		o := config.New()
		o.SidecarDir, o.MetricsListen = c.sidecarDir, c.listen
		address := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.at))
		if got := metricsMessage(o, address); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
