package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newCompletion returns `spillway completion`.
func newCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	cmd := newSubcommand(&cobra.Command{
		Use:       "completion bash|zsh|fish|powershell",
		Short:     "Print the script that completes command lines of spillway in a shell",
		ValidArgs: shells,
		Long: `spillway completion prints a script for the shell that the argument names. The shell then completes
commands, flags and their values.

  source <(spillway completion bash)

It prints the script to standard output. bash needs its package bash-completion.

It fails with code 1 if the argument names no shell.`,
		Example: `  # For each new session:
  spillway completion bash > /etc/bash_completion.d/spillway
  spillway completion zsh > "${fpath[1]}/_spillway"
  spillway completion fish > ~/.config/fish/completions/spillway.fish
  spillway completion powershell >> $PROFILE`,
	})
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 && slices.Contains(shells, args[0]) {
			return nil
		}
		return fmt.Errorf("spillway completion takes one argument: %s", strings.Join(shells, ", "))
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		root, out := cmd.Root(), cmd.OutOrStdout()
		switch args[0] {
		case "bash":
			return root.GenBashCompletionV2(out, true)
		case "zsh":
			return root.GenZshCompletion(out)
		case "fish":
			return root.GenFishCompletion(out, true)
		}
		return root.GenPowerShellCompletionWithDesc(out)
	}
	return cmd
}

// completeChoices has shells complete the values of flags that have a few, such as --log-level, in
// cmd and its commands. Without that, shells offer files.
func completeChoices(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		values, _ := pflag.UnquoteUsage(f)
		if words := strings.Split(values, "|"); len(words) > 1 {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, // whose errors say that it was called twice
				cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	for _, sub := range cmd.Commands() {
		completeChoices(sub)
	}
}
