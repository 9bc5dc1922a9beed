package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"spillway/internal/config"
)

// version and commit are set by the build: -ldflags "-X main.version=v0.1.0 -X main.commit=…".
// Otherwise they are what the Go tool has written into the program.
var version, commit string

// buildInfo is what spillway version prints.
type buildInfo struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// readBuildInfo reads what the program was built from.
func readBuildInfo() buildInfo {
	b := buildInfo{
		Version: version, Commit: commit, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(version, info.Main.Version)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = cmp.Or(b.Commit, s.Value)
		}
	}
	return b
}

// String is the version in one line.
func (b buildInfo) String() string {
	return fmt.Sprintf("%s (commit %s, %s, %s)", b.Version, cmp.Or(b.Commit, "unknown"), b.GoVersion, b.Platform)
}

// versionText is the version and the toolchain, as reports have it.
func versionText() string {
	b := readBuildInfo()
	return fmt.Sprintf("%s (%s)", b.Version, b.GoVersion)
}

// newVersion returns `spillway version`.
func newVersion() *cobra.Command {
	const text, jsonFormat = "text", "json"
	format := text
	cmd := &cobra.Command{
		Use:   "version [flags]",
		Short: "Print the version, the commit, the Go version and the platform",
		Long: `spillway version prints what this program was built from. It contacts no server.

  spillway version --output json

It prints one line, or a JSON document with the keys version, commit, goVersion and platform. If the
commit is unknown, JSON has no such key.

It fails with code 1 if a flag is wrong.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format == text {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "spillway", readBuildInfo())
				return err
			}
			printer := json.NewEncoder(cmd.OutOrStdout())
			printer.SetIndent("", "  ")
			return printer.Encode(readBuildInfo())
		},
	}
	cmd.Flags().VarP(config.NewChoice(&format, text, jsonFormat), "output", "o", "Print the version in this format.")
	return newSubcommand(cmd)
}
