package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/logging"
)

// startFunc runs the process with settings that Validate has accepted. It returns when the process
// ends. sink is where log goes.
type startFunc func(ctx context.Context, o *config.Settings, log *zap.Logger, sink *logging.Output) error

const helpColumns = 110

const longHelp = `spillway mirrors resources of a Kubernetes API server once and serves any number of LIST and WATCH
clients from memory. Clients use spillway as they use the API server. All other requests pass through.

On a laptop, with the rights of the current kubeconfig:

  spillway --kubeconfig ~/.kube/config --resources pods,deployments.apps --listen-identity self
  kubectl --server http://127.0.0.1:8001 get pods --watch

It prints its log to stderr, one line of JSON for each entry, and runs until SIGTERM or SIGINT.

It fails with code 1 if a setting is wrong, or if the API server refuses it. One line then names the
setting and the remedy. While the API server is unreachable, spillway waits.`

const sourcesHelp = `Every flag can also be given as an environment variable, or in the YAML file named by --config. The
variable of --history-bytes is SPILLWAY_HISTORY_BYTES, and its key in the file is historyBytes. A
list is separated by commas in a variable, and is a YAML list in the file. A flag takes precedence
over the environment, the environment over the file, and the file over the default. Spillway does
not start with a variable SPILLWAY_* or a key that it does not know.

The file begins with its version and kind. spillway config print writes a file with all keys:

  apiVersion: config.spillway.example.com/v1alpha1
  kind: SpillwayConfiguration
  resources: [pods, deployments.apps]
  historyBytes: 128Mi`

// newCommand returns the root command. It reads settings from args, then environ ("NAME=value"
// each), then the file that they name.
func newCommand(environ []string, sink *logging.Output, start startFunc) *cobra.Command {
	o := config.New()
	settings := newConfig(o, environ) // with the flags of settings alone
	groups := o.FlagGroups()
	last := groups[len(groups)-1].Flags
	last.Bool("version", false, "Print the version and exit.")
	last.BoolP("help", "h", false, "Print this help and exit.")
	cmd := &cobra.Command{
		Use:                        "spillway [flags]",
		Short:                      "A watch fan-out proxy for Kubernetes",
		Long:                       longHelp,
		Version:                    versionText(),
		Args:                       noArguments,
		SilenceUsage:               true,
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 1,
		CompletionOptions:          cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return startWith(cmd, o, environ, sink, start)
		},
	}
	for _, g := range groups {
		cmd.Flags().AddFlagSet(g.Flags)
	}
	cmd.Flags().SortFlags = false
	cmd.SetVersionTemplate("spillway {{.Version}}\n")
	cmd.SetFlagErrorFunc(explain)
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), helpText(cmd, groups)) })
	cmd.AddCommand(newCheck(), settings, newInject(), newKubeconfig(), newTop(), newUninject(), newWebhook(sink))
	return cmd
}

// startWith completes the settings from the environment and the file, validates them, and starts.
func startWith(cmd *cobra.Command, o *config.Settings, environ []string, sink *logging.Output, start startFunc) error {
	if err := o.Complete(environ); err != nil {
		return err
	}
	if err := o.Validate(environ); err != nil {
		return err
	}
	return start(cmd.Context(), o, logging.New(o.LogLevel, o.LogFormat, sink), sink)
}

// explain says what is wrong with the flags of cmd.
func explain(cmd *cobra.Command, err error) error {
	return config.ExplainFlagError(cmd.CommandPath(), cmd.Flags(), err)
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("unexpected argument %q: did you mean spillway %s?", args[0], near[0])
	}
	return fmt.Errorf("unexpected argument %q: spillway takes flags or a command; spillway --help lists them", args[0])
}

// helpText is --help: what spillway is, its commands, its flags under their headings, and where
// else these can be set.
func helpText(cmd *cobra.Command, groups []config.FlagGroup) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n", cmd.Long, cmd.UseLine())
	fmt.Fprintf(&b, "\nCommands (spillway COMMAND --help describes each):\n")
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintf(&b, "  %-12s %s\n", sub.Name(), sub.Short)
		}
	}
	for _, g := range groups {
		fmt.Fprintf(&b, "\n%s:\n%s", g.Name, g.Flags.FlagUsagesWrapped(helpColumns))
	}
	fmt.Fprintf(&b, "\n%s\n", sourcesHelp)
	return b.String()
}

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
