package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// subcommands are what spillway does besides being a proxy. Each has a file of its own.
func subcommands(stderr io.Writer) []*cobra.Command {
	return []*cobra.Command{
		newCheck(),
		newInject(),
		newKubeconfig(),
		newUninject(),
		newWebhook(stderr),
	}
}

// commandHelp is --help of a subcommand.
func commandHelp(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n\nExamples:\n%s\n\nFlags:\n%s",
		cmd.Long, cmd.UseLine(), cmd.Example, cmd.Flags().FlagUsagesWrapped(helpColumns))
	return b.String()
}

// prepare gives a subcommand what all have.
func prepare(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("unexpected argument %q: %s takes flags only; %s --help lists them",
			args[0], cmd.CommandPath(), cmd.CommandPath())
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), commandHelp(cmd)) })
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolP("help", "h", false, "Print this help and exit.")
	return cmd
}
