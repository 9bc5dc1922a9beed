package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"spillway/internal/config"
	"spillway/internal/sidecar/inject"
	"spillway/internal/status"
)

// newInject returns `spillway inject`.
func newInject() *cobra.Command {
	o := inject.Defaults()
	o.CheckFlags = config.CheckSidecarFlags
	cmd := &cobra.Command{
		Use:   "inject [flags]",
		Short: "Add spillway to the pods of manifests, as a sidecar",
		Long: `spillway inject adds spillway as a sidecar to pods in manifests, and to objects that make pods.
Unmodified programs with in-cluster configuration then reach spillway as they reach the API server.
spillway uninject removes it again.

  spillway inject --image registry.example.com/spillway:v1 -f deploy.yaml | kubectl apply -f -

It prints the manifests to standard output, and to stderr a line for each pod or maker of pods:
"deployment/agent injected", or "deployment/agent left as it is" with the reason. A document without
pods stays as it is, byte for byte, and stderr has the line "service/agent skipped: its kind is not
known to have pods". A document with changes is written again. YAML keeps its comments and its order,
but not its blank lines, indentation and directives. If a change would also reach an alias, the
document is written without anchors and comments. JSON is indented by two spaces.

It fails with code 1, and prints no manifests, if a manifest cannot be read, if a flag or an
annotation is wrong, or if a pod cannot have a sidecar. It does not know what the namespace of a pod
allows, and the API server refuses pods that break LimitRanges and ResourceQuotas. Only sidecars
that the webhook adds keep to these limits.

An annotation of a pod, or of a template of pods, overrides the flag of the same name: spillway.example.com/port
overrides --port. There is none for --filename and --image-pull-policy. A pod with
spillway.example.com/inject: disabled gets no sidecar.

A pod keeps its QoS class. If a pod requests nothing, its sidecar requests nothing, unless an
annotation or a limit sets a size. If variables of a container name a proxy, the loopback address is
added to its NO_PROXY.`,
		Example: `  kubectl get deploy agent -o yaml | spillway inject --image registry.example.com/spillway:v1 |
    kubectl apply -f -`,
	}
	file := manifestFlag(cmd)
	o.AddFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.Validate(); err != nil {
			return err
		}
		return rewriteManifests(cmd, *file, "injected", func(text string) (string, []inject.ObjectResult, error) {
			return inject.Manifest(text, o)
		})
	}
	return newSubcommand(cmd)
}

// newUninject returns `spillway uninject`.
func newUninject() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "uninject [flags]",
		Short: "Remove from manifests what spillway inject has added",
		Long: `spillway uninject removes from manifests the sidecars that spillway inject or the webhook has added.

  spillway uninject -f injected.yaml | kubectl apply -f -

It prints the manifests to standard output, and to stderr a line for each pod or maker of pods, such
as "deployment/agent uninjected". A document without pods is skipped, as by spillway inject. A
document without a sidecar stays as it is, byte for byte. A changed document gets back the content
that it had before injection, except lists and mappings that were empty. Its text is written again,
as by spillway inject.

It fails with code 1, and prints no manifests, if a manifest cannot be read.`,
	}
	file := manifestFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return rewriteManifests(cmd, *file, "uninjected", inject.Remove)
	}
	return newSubcommand(cmd)
}

func manifestFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("filename", "f", "-",
		"Read the manifests in this `file`, YAML or JSON. - is standard input.")
}

// rewriteManifests rewrites the manifests in a file. To standard error it prints the outcome for
// each object: done, or why not. After an error it prints nothing to standard output.
func rewriteManifests(cmd *cobra.Command, file, done string,
	rewrite func(string) (string, []inject.ObjectResult, error)) error {
	text, err := readManifests(cmd, file)
	if err != nil {
		return fmt.Errorf("--filename=%s: cannot be read: %s", file, config.Cause(err))
	}
	out, results, err := rewrite(string(text))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(results, func(r inject.ObjectResult) bool { return !r.HasNoPods }) {
		fmt.Fprintf(cmd.ErrOrStderr(), "--filename=%s: has no pods, and nothing that makes pods: nothing was %s\n", file,
			done)
	}
	for _, r := range results {
		if r.HasNoPods {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s skipped: %s\n", status.Printable(r.Object), r.SkipReason)
			continue
		}
		if r.SkipReason != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s left as it is: %s\n", r.Object, r.SkipReason)
			continue
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s %s\n", r.Object, done)
		for _, note := range r.Notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", r.Object, note)
		}
	}
	_, err = io.WriteString(cmd.OutOrStdout(), out)
	return err
}

func readManifests(cmd *cobra.Command, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(cmd.InOrStdin())
	}
	return os.ReadFile(file) // #nosec G304 -- the user names it
}
