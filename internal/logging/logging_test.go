package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"log"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"spillway/internal/requestinfo"
)

// logEverything writes one entry per level and source and returns what came out, line by line.
func logEverything(level, format string) []string {
	var out bytes.Buffer
	logger := New(level, format, &out)
	logger.Debug("own debug")
	logger.Info("own info")
	logger.Warn("own warn")
	logger.Error("own error")
	klog.V(4).Info("klog v4")
	klog.V(2).InfoS("klog v2", "resource", "pods")
	klog.Background().V(2).Info("contextual v2")
	klog.InfoS("klog info")
	klog.ErrorS(errors.New("boom"), "klog error")
	log.Print("stdlib info")
	_ = logger.Sync()
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestLogLevelsAndSources(t *testing.T) {
	f := func(level string, want ...string) {
		t.Helper()
		var got []string
		for _, line := range logEverything(level, "json") {
			var entry struct{ Level, Logger, Msg, Time, Stacktrace string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatalf("%q is not JSON: %v", line, err)
			}
			if entry.Time == "" || entry.Stacktrace != "" {
				t.Errorf("%s: want a time and no stack trace", line)
			}
			got = append(got, strings.TrimSpace(entry.Level+" "+entry.Logger)+": "+strings.TrimSpace(entry.Msg))
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("--log-level=%s wrote\n%s\nwant\n%s", level, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	f("debug", "debug: own debug", "info: own info", "warn: own warn", "error: own error", "debug client-go: klog v2",
		"debug client-go: contextual v2", "info client-go: klog info", "error client-go: klog error",
		"info stdlib: stdlib info")
	f("info", "info: own info", "warn: own warn", "error: own error", "info client-go: klog info",
		"error client-go: klog error",
		"info stdlib: stdlib info")
	f("warn", "warn: own warn", "error: own error", "error client-go: klog error")
	f("error", "error: own error", "error client-go: klog error")
}

func TestMalformedQueriesOfClientsAreNotLogged(t *testing.T) {
	var out bytes.Buffer
	logger := New("debug", "json", &out)
	info, err := requestinfo.Read("GET", "/api/v1/pods", "limit=abc&fieldSelector=metadata.name%3Dsecret")
	if err != nil || info.Verb != "list" || info.Name != "" {
		t.Errorf("%+v, %v: this query was to be malformed", info, err)
	}
	klog.Background().WithValues("a", 1).Error(err, "Couldn't parse request")
	if _ = logger.Sync(); out.Len() > 0 {
		t.Error(out.String())
	}
}

func TestConsoleFormat(t *testing.T) {
	lines := logEverything("warn", "console")
	if len(lines) != 3 || !strings.HasSuffix(lines[0], "\twarn\town warn") {
		t.Errorf("got %q", lines)
	}
}
