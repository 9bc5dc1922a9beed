package main

import (
	"net/http"
	"strings"
	"testing"

	"spillway/internal/fakeapiserver"
)

// A proxy with a budget logs it, keeps to it, and ends as any other.
func TestRunWithinABudget(t *testing.T) {
	up := secureUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	p := running(t, up, nil)
	p.ready()
	if p.logs.FilterMessage("memory is limited").Len() != 1 {
		t.Error("the log does not say that memory is limited")
	}
	eventually(t, "what is in use", func() bool {
		code, body := p.get(p.metrics + "/metrics")
		return code == http.StatusOK && strings.Contains(body, "spillway_memory_in_use_bytes ") &&
			!strings.Contains(body, "spillway_memory_in_use_bytes 0\n")
	})
	if _, body := p.get(p.metrics + "/metrics"); !strings.Contains(body, `spillway_memory_degraded{step="evict"} 0`) {
		t.Error("the metrics show no steps")
	}
}
