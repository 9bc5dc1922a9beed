package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"spillway/internal/config"
)

// newConfig returns `spillway config`, whose commands are about the settings o of the process.
func newConfig(o *config.Settings, environ []string) *cobra.Command {
	cmd := newSubcommand(&cobra.Command{
		Use:   "config print [flags]",
		Short: "Print the settings as a configuration file",
		Long: `spillway config has one command, print, which writes the settings as a configuration file.

  spillway config print > spillway.yaml

spillway config print --help describes it.`,
		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("unexpected argument %q: did you mean spillway config print?", args[0])
	}
	cmd.AddCommand(newConfigPrint(o, environ))
	return cmd
}

// newConfigPrint returns `spillway config print`, which has all flags of the root command.
func newConfigPrint(o *config.Settings, environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print [flags]",
		Short: "Print the settings as a configuration file",
		Long: `spillway config print writes the settings with which spillway would start, as a configuration file. A
comment says where each value comes from: a line of a file, a variable, a flag, or the default.

  spillway config print --config c.yaml --history-bytes 128Mi

It accepts the flags, variables and configuration file that spillway accepts, and prints all settings
in the order of spillway --help=all. A # in front of a key marks a default:

  apiVersion: config.spillway.example.com/v1alpha1
  kind: SpillwayConfiguration
  …
  resources: [pods, nodes] # c.yaml:3
  historyBytes: 128Mi # --history-bytes
  #historyMinAge: 1m15s # default

spillway --config reads what it prints, and has the same settings then. At its start, spillway lowers
some defaults to fit a memory budget. The printed defaults are those without a budget.

It fails with code 1, and prints no settings, if one is wrong. It does not need an API server.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Complete(environ); err != nil {
				return err
			}
			// The file may be for a pod, where no kubeconfig is needed.
			if err := o.ValidateAsFile(append(slices.Clone(environ), "KUBERNETES_SERVICE_HOST=any")); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout())
		},
	}
	for _, g := range o.FlagGroups() {
		cmd.Flags().AddFlagSet(g.Flags)
	}
	cmd = newSubcommand(cmd)
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { // without the flags, which spillway --help=all lists
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nUsage:\n  %s\n", cmd.Long, cmd.UseLine())
	})
	return cmd
}
