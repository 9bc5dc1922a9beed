package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"spillway/internal/config"
)

// newSubcommand adds to cmd what all subcommands have, and returns it: help, and the refusal of
// arguments.
// Its Long text says, in this order, what it does, one example, what it prints and when it fails.
func newSubcommand(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("unexpected argument %q: %s takes flags only; %s lists them",
			args[0], cmd.CommandPath(), config.HelpOf(cmd.CommandPath()))
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), subcommandHelp(cmd)) })
	cmd.Flags().SortFlags = false
	cmd.Flags().VarPF(new(subcommandHelpFlag), "help", "h", "Print this help and exit.").NoOptDefVal = "true"
	return cmd
}

// subcommandHelpFlag is --help of a subcommand. It accepts the root command's --help=all.
type subcommandHelpFlag bool

// String implements pflag.Value.
func (h *subcommandHelpFlag) String() string { return strconv.FormatBool(bool(*h)) }

// Set implements pflag.Value.
func (h *subcommandHelpFlag) Set(text string) error {
	if !slices.Contains([]string{"true", "false", "all"}, text) {
		return errors.New("must be left out")
	}
	*h = text != "false"
	return nil
}

// Type implements pflag.Value.
func (*subcommandHelpFlag) Type() string { return "bool" }

// subcommandHelp is --help of a subcommand.
func subcommandHelp(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n", cmd.Long, cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nMore examples:\n%s\n", cmd.Example)
	}
	fmt.Fprintf(&b, "\nFlags:\n%s", cmd.Flags().FlagUsagesWrapped(helpColumns))
	return b.String()
}
