package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/metric"
)

// version and commit are set by the build: -ldflags "-X main.version=v0.1.0 -X main.commit=HASH".
// Otherwise they are what the Go tool has written into the program.
var version, commit string

// unknown is a part of buildInfo that neither the build nor the Go tool names.
const unknown = "unknown"

// buildInfo is what the program was built from, as spillway version prints it.
type buildInfo struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// readBuildInfo takes each part from the build's flags, else from the Go tool, else it is unknown.
func readBuildInfo() buildInfo {
	b := buildInfo{
		Version: version, Commit: commit, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = cmp.Or(b.Commit, s.Value)
			}
		}
	}
	b.Version, b.Commit = cmp.Or(b.Version, unknown), cmp.Or(b.Commit, unknown)
	return b
}

// String is the build in one line.
func (b buildInfo) String() string {
	return fmt.Sprintf("%s (commit %s, %s, %s)", b.Version, b.Commit, b.GoVersion, b.Platform)
}

// versionText is the version and the toolchain, for the status report.
func versionText() string {
	b := readBuildInfo()
	return fmt.Sprintf("%s (%s)", b.Version, b.GoVersion)
}

// registerBuildInfo registers the metric of the build.
func registerBuildInfo(r prometheus.Registerer) {
	b := readBuildInfo()
	metric.At(r).GaugeVec("spillway_build_info",
		"1. The labels name the version and the commit of Spillway, and the version of Go that built it.",
		"version", "commit", "goversion").WithLabelValues(b.Version, b.Commit, b.GoVersion).Set(1)
}
