package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"spillway/internal/config"
)

// newVersion returns `spillway version`.
func newVersion() *cobra.Command {
	const text, jsonFormat = "text", "json"
	format := text
	cmd := &cobra.Command{
		Use:   "version [flags]",
		Short: "Print the version, the commit, the Go version and the platform",
		Long: `spillway version prints what this program was built from. It contacts no server.

  spillway version --output json

It prints one line, or a JSON document with the keys version, commit, goVersion and platform.

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
