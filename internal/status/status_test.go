package status

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What others read by programs stays as it is: the names and the forms of what is in the JSON.
func TestJSON(t *testing.T) {
	got, err := json.MarshalIndent(sample().Select(DefaultQuery()), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "report.json")
	if *update {
		if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("the JSON differs from %s; if it is meant to, run go test ./internal/status -update. Got:\n%s", golden, got)
	}
}

func TestText(t *testing.T) {
	var b strings.Builder
	q := DefaultQuery()
	if err := sample().Select(q).WriteText(&b, q); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "report.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the text differs from %s; if it is meant to, run go test ./internal/status -update. Got:\n%s", golden,
			b.String())
	}
}

// A file that is not in use as it is takes precedence over a certificate that ends soon, and both
// take it over their number.
func TestFileFactNamesWhatNeedsACare(t *testing.T) {
	r := sample()
	f := func(want string, alert bool) {
		t.Helper()
		if got := r.fileFact(); got.Text != want || got.Alert != alert {
			t.Errorf("got %q, alert %t; want %q", got.Text, got.Alert, want)
		}
	}
	f("2 followed, /etc/spillway/tls.crt ends in 5h", true)
	r.Files[1].Expires = new(noon.Add(24 * time.Hour))
	f("2 followed, /etc/spillway/tls.crt ends in 1d", false)
	r.Files[1].Expires = new(noon)
	f("2 followed, /etc/spillway/tls.crt has ended", true)
	r.Files[0].Error = "no such file\x1b"
	f("kept from 2026-05-04 11:00:00 UTC: no such file\ufffd", true)
	r.Files = r.Files[:0]
	f("0 followed", false)
}

func TestFormats(t *testing.T) {
	f := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(Bytes(0), "0 B")
	f(Bytes(1023), "1023 B")
	f(Bytes(1024), "1.0 KiB")
	f(Bytes(10*1024), "10 KiB")
	f(Bytes(1024*1024-1), "1.0 MiB")
	f(Bytes(1536<<20), "1.5 GiB")
	f(Count(0), "0")
	f(Count(999), "999")
	f(Count(1000), "1,000")
	f(Count(1234567), "1,234,567")
	f(Count(-1234), "-1,234")
	f(Seconds(0.25), "250ms")
	f(Seconds(1.25), "1.2s")
	f(Seconds(75), "75s")
	f(Seconds(120), "2m")
	f(Seconds(185), "3m5s")
	f(Seconds(2*3600+5*60+7), "2h5m")
	f(Seconds(3*86400+4*3600), "3d4h")
	f(Printable("kubectl/v1.37 (linux/amd64) ünïcode 漢字"), "kubectl/v1.37 (linux/amd64) ünïcode 漢字")
	f(Printable("a\x1b[2Jb\r\nc\x00\x7f\u009b\u202e\u2066d\xff"),
		"a\ufffd[2Jb\ufffd\ufffdc\ufffd\ufffd\ufffd\ufffd\ufffdd\ufffd")
	f(selectorText("", "", "", ""), "all")
	f(selectorText("ns", "", "a=b", "c=d"), "ns/* a=b c=d")
	f(selectorText("", "name", "", ""), "name")
	f(selectorText("ns", "name", "", ""), "ns/name")
}

func TestUpstreamFact(t *testing.T) {
	r := sample()
	f := func(want string, alert bool) {
		t.Helper()
		if got := r.Facts()[0]; got.Text != want || got.Alert != alert {
			t.Errorf("%+v, want %q", got, want)
		}
	}
	f("unreachable, states are at most 12s old: pods; https://api:6443", true)
	r.Upstream.StaleResources = nil
	f("answers, https://api:6443", false)
	r.Upstream.Waiting = "connection\x1b refused"
	f("has not answered yet, https://api:6443: connection\ufffd refused", true)
}

// TestEvictedFact shows that evictions of slow clients count for whichever reason, and nothing else
// does.
func TestEvictedFact(t *testing.T) {
	r := sample()
	r.Ended = map[string]uint64{"timeout": 5, "slow_client_stalled": 1, "slow_client_memory_pressure": 20,
		"slow_client_quota": 300}
	for _, f := range r.Facts() {
		if f.Name == "Evicted" && f.Text != "321" {
			t.Errorf("evicted: %s, want 321", f.Text)
		}
	}
	for _, f := range r.EndFacts() {
		if f.Alert != (f.Name != "timeout") {
			t.Errorf("%s is highlighted: %t", f.Name, f.Alert)
		}
	}
}
