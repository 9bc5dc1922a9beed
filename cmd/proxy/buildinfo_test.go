package main

import (
	"strings"
	"testing"

	"spillway/internal/fakeapiserver"
)

// spillway_build_info is 1, with the version and the commit that the build has set.
func TestBuildInfoNamesVersionAndCommit(t *testing.T) {
	version, commit = "v0.1.0", "0123456789abcdef0123456789abcdef01234567"
	defer func() { version, commit = "", "" }()
	up := fakeapiserver.New(fakeapiserver.Options{})
	t.Cleanup(up.Close)
	p := running(t, up, nil)
	_, metrics := p.get(p.metrics + "/metrics")
	want := `spillway_build_info{commit="0123456789abcdef0123456789abcdef01234567",goversion="go1.`
	if i := strings.Index(metrics, want); i < 0 || !strings.Contains(metrics[i:], `",version="v0.1.0"} 1`+"\n") {
		t.Errorf("metrics lack %s…", want)
	}
}

// A build without any of these has labels all the same: the Go tool's words, or unknown.
func TestBuildInfoOfAnUnnamedBuild(t *testing.T) {
	if b := readBuildInfo(); b.Version == "" || b.Commit == "" || !strings.HasPrefix(b.GoVersion, "go") {
		t.Errorf("%+v", b)
	}
}
