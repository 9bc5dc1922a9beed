package main

import (
	"fmt"
	"runtime/debug"
)

// version is set by the build: -ldflags "-X main.version=v0.1.0". Otherwise it is what the Go tool
// knows of the module.
var version string

// versionText is what --version prints: the version and the toolchain.
func versionText() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}
	return fmt.Sprintf("%s (%s)", buildVersion(info), info.GoVersion)
}

func buildVersion(info *debug.BuildInfo) string {
	if version != "" {
		return version
	}
	return info.Main.Version
}
