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
// Otherwise they are what the Go tool knows of the module.
var version, commit string

// unknown is a part of buildInfo that neither the build nor the Go tool names.
const unknown = "unknown"

// buildInfo is what the program was built from.
type buildInfo struct{ version, commit, goVersion string }

func readBuild() buildInfo {
	b := buildInfo{version: version, commit: commit, goVersion: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.version, b.goVersion = cmp.Or(b.version, info.Main.Version), info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.commit = cmp.Or(b.commit, s.Value)
			}
		}
	}
	b.version, b.commit = cmp.Or(b.version, unknown), cmp.Or(b.commit, unknown)
	return b
}

// versionText is what --version prints: the version and the toolchain.
func versionText() string {
	b := readBuild()
	return fmt.Sprintf("%s (%s)", b.version, b.goVersion)
}

// registerBuildInfo registers the metric of the build.
func registerBuildInfo(r prometheus.Registerer) {
	b := readBuild()
	metric.At(r).GaugeVec("spillway_build_info",
		"1. The labels name the version and the commit of Spillway, and the version of Go that built it.",
		"version", "commit", "goversion").WithLabelValues(b.version, b.commit, b.goVersion).Set(1)
}
