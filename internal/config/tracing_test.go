package config

import (
	"strings"
	"testing"
)

const tracingKind = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"

// What is no configuration is refused with the reason, and what is one is read.
func TestTracingConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "is no tracing configuration: it does not say apiVersion",
		tracingKind + "endpoint: http://c\n": "is no tracing configuration: endpoint: ",
		tracingKind + "samplingRatePerMillion: -1": "is no tracing configuration: samplingRatePerMillion: ",
		tracingKind + "endpoint: c:4317\n":         "",
	} {
		file := writeFile(t, "tracing.yaml", text)
		got := start(nil, "--tracing-config-file="+file)
		if want == "" {
			if got.code != 0 || got.options == nil || *got.options.Tracing.Config.Endpoint != "c:4317" {
				t.Errorf("%q: %+v", text, got)
			}
			continue
		}
		if got.code == 0 || !strings.HasPrefix(got.stderr, "spillway: --tracing-config-file="+file+": "+want) ||
			strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%q: %q", text, got.stderr)
		}
	}
	if got := start(nil, "--tracing-config-file=/nowhere"); got.code == 0 ||
		got.stderr != "spillway: --tracing-config-file=/nowhere: cannot be read: no such file or directory\n" {
		t.Errorf("%+v", got)
	}
	if got := start(nil); got.code != 0 || got.options.Tracing.Config != nil {
		t.Errorf("by default: %+v", got)
	}
}
