package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

It prints its log to stderr, one line of JSON for each entry, and runs until SIGTERM or SIGINT. It
fails with code 1 if a setting is wrong, or if the API server refuses it. One line then names the
setting and the remedy. While the API server is unreachable, spillway waits.`

const examples = `  # On a laptop, where all programs then have the rights of your current kubeconfig context:
  spillway --resources pods,deployments.apps --listen-identity self
  kubectl --server http://127.0.0.1:8001 get pods --watch --output name

  # In a cluster, two replicas behind TLS. The chart makes the certificate, the Service and the roles:
  helm install spillway charts/spillway --namespace spillway-system --create-namespace

  # The same without the chart, in each replica, with the same certificate for the name of the Service.
  # The account of the pods needs list and watch of the resources, and the role system:auth-delegator.
  # The kubelet probes /livez and /readyz at port 9464 over HTTPS:
  spillway --resources pods,services --listen-tls :6443 --tls-cert-file tls.crt --tls-private-key-file tls.key \
    --metrics-listen :9464

  # Beside a controller, as a sidecar of its pods:
  spillway inject --image registry.example.com/spillway:v1 -f deploy.yaml | kubectl apply -f -

  # With at most 2 GiB of memory. In a container with a limit, that limit is the default:
  spillway --resources pods --memory-budget 2Gi`

const sourcesHelp = `Every flag can also be given as an environment variable, or in the YAML file named by --config. The
variable of --history-bytes is SPILLWAY_HISTORY_BYTES, and its key in the file is historyBytes. A
list is separated by commas in a variable, and is a YAML list in the file. A flag takes precedence
over the environment, the environment over the file, and the file over the default. Spillway does
not start with a variable SPILLWAY_* or a key that it does not know. It ignores the variables that
the kubelet sets for a Service named spillway, such as SPILLWAY_SERVICE_HOST.

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
	help := &helpFlag{}
	last := groups[len(groups)-1]
	last.Flags.Bool("version", false, "Print the version and exit.")
	last.Flags.VarPF(help, "help", "h", "Print this help and exit. --help=all prints all flags and all of their text.").
		NoOptDefVal = "true"
	last.Common.AddFlag(last.Flags.Lookup("version"))
	last.Common.AddFlag(last.Flags.Lookup("help"))
	cmd := &cobra.Command{
		Use:                        "spillway [flags]",
		Short:                      "A watch fan-out proxy for Kubernetes",
		Long:                       longHelp,
		Example:                    examples,
		Version:                    readBuildInfo().String(),
		Args:                       noArguments,
		SilenceUsage:               true,
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 1,
		CompletionOptions:          cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if help.isWanted {
				return cmd.Help()
			}
			return startWith(cmd, o, environ, sink, start)
		},
	}
	for _, g := range groups {
		cmd.Flags().AddFlagSet(g.Flags)
	}
	cmd.Flags().SortFlags = false
	cmd.SetVersionTemplate("spillway {{.Version}}\n")
	cmd.SetFlagErrorFunc(explain)
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprint(cmd.OutOrStdout(), helpText(cmd, groups, help.isFull))
	})
	cmd.AddCommand(newCheck(), newCompletion(), settings, newInject(), newKubeconfig(), newTop(), newUninject(),
		newVersion(), newWebhook(sink))
	cmd.SetHelpCommand(newHelp())
	completeChoices(cmd)
	return cmd
}

// helpFlag is --help of the root command, or --help=all. cobra prints the help for a flag of this
// name, and ignores arguments, if the flag is a bool that is true. This one is always false to
// cobra, so that cobra looks at the arguments first.
type helpFlag struct{ isWanted, isFull bool }

// String implements pflag.Value.
func (*helpFlag) String() string { return "false" }

// Set implements pflag.Value.
func (h *helpFlag) Set(text string) error {
	h.isWanted, h.isFull = text != "false", text == "all"
	if slices.Contains([]string{"true", "false", "all"}, text) {
		return nil
	}
	return errors.New("must be all, or be left out")
}

// Type implements pflag.Value.
func (*helpFlag) Type() string { return "bool" }

// newHelp returns `spillway help`, which prints the help of a command.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if found == cmd.Root() {
				if err := noArguments(found, rest); err != nil {
					return err
				}
			}
			return found.Help()
		},
	}
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
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) && invalid.GetFlag().Name == "help" {
		return fmt.Errorf("--help=%s: %w", invalid.GetValue(), invalid.Unwrap())
	}
	return config.ExplainFlagError(cmd.CommandPath(), cmd.Flags(), err)
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("unexpected argument %q: did you mean spillway %s?", args[0], near[0])
	}
	if args[0] == "all" { // of --help all
		return errors.New("unexpected argument \"all\": did you mean spillway --help=all?")
	}
	return fmt.Errorf("unexpected argument %q: spillway takes flags or a command; spillway --help lists them", args[0])
}

// helpText is --help: what spillway is, its commands, its common flags under their headings with
// one sentence each, and where else these can be set. If it isFull, it has all flags with all text.
func helpText(cmd *cobra.Command, groups []config.FlagGroup, isFull bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n\nExamples:\n%s\n", cmd.Long, cmd.UseLine(), cmd.Example)
	fmt.Fprintf(&b, "\nCommands (spillway COMMAND --help describes each):\n")
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintf(&b, "  %-12s %s\n", sub.Name(), sub.Short)
		}
	}
	for _, g := range groups {
		flags := g.Flags
		if !isFull {
			flags = shortened(g.Common)
		}
		if flags.HasFlags() {
			fmt.Fprintf(&b, "\n%s:\n%s", g.Name, flags.FlagUsagesWrapped(helpColumns))
		}
	}
	if !isFull {
		fmt.Fprint(&b, "\nThese are the flags that most users need. spillway --help=all describes all flags in full.\n")
	}
	fmt.Fprintf(&b, "\n%s\n", sourcesHelp)
	return b.String()
}

// shortened are flags with the first sentence of their text.
func shortened(flags *pflag.FlagSet) *pflag.FlagSet {
	short := pflag.NewFlagSet("", pflag.ContinueOnError)
	short.SortFlags = false
	flags.VisitAll(func(f *pflag.Flag) {
		one := *f
		if end := strings.Index(f.Usage, ". "); end >= 0 {
			one.Usage = f.Usage[:end+1]
		}
		short.AddFlag(&one)
	})
	return short
}
