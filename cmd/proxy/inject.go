package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

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

The cluster must be Kubernetes 1.31 or later. The service account of a pod needs list and watch of
what its sidecar mirrors, and nothing more. Requests for other resources pass through.

A pod keeps its QoS class. If a pod requests nothing, its sidecar requests nothing, unless an
annotation or a limit sets a size. If variables of a container name a proxy, the loopback address is
added to its NO_PROXY.`,
		Example: `  kubectl get deploy agent -o yaml | spillway inject --image registry.example.com/spillway:v1 |
    kubectl apply -f -`,
	}
	files := manifestFlag(cmd)
	o.AddFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.Validate(); err != nil {
			return err
		}
		return rewriteManifests(cmd, *files, "injected", func(text string) (string, []inject.ObjectResult, error) {
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
	files := manifestFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return rewriteManifests(cmd, *files, "uninjected", inject.Remove)
	}
	return newSubcommand(cmd)
}

func manifestFlag(cmd *cobra.Command) *[]string {
	return cmd.Flags().StringArrayP("filename", "f", nil,
		"Read the manifests in this `file`, YAML or JSON. The flag can be given several times. - is standard input, and "+
			"the default.")
}

// rewriteManifests rewrites the manifests in files. To standard error it prints the outcome for
// each object: done, or why not. After an error it prints nothing to standard output.
func rewriteManifests(cmd *cobra.Command, files []string, done string,
	rewrite func(string) (string, []inject.ObjectResult, error)) error {
	if len(files) == 0 {
		files = []string{"-"}
	}
	if first := slices.Index(files, "-"); first >= 0 && slices.Contains(files[first+1:], "-") {
		return errors.New("--filename=-: standard input can be read only once")
	}
	var all []string
	outcomes := make([][]inject.ObjectResult, len(files))
	for i, file := range files {
		text, err := readManifests(cmd, file)
		if err != nil {
			return fmt.Errorf("--filename=%s: cannot be read: %s", file, config.Cause(err))
		}
		out, results, err := rewrite(string(text))
		switch {
		case err != nil && len(files) > 1:
			return fmt.Errorf("--filename=%s: %w", file, err)
		case err != nil:
			return err
		}
		all, outcomes[i] = append(all, out), results
	}
	for i, file := range files {
		printResults(cmd.ErrOrStderr(), file, done, outcomes[i])
	}
	_, err := io.WriteString(cmd.OutOrStdout(), joinManifests(all))
	return err
}

// printResults prints what was done to the objects of a file.
func printResults(to io.Writer, file, done string, results []inject.ObjectResult) {
	if !slices.ContainsFunc(results, func(r inject.ObjectResult) bool { return !r.HasNoPods }) {
		fmt.Fprintf(to, "--filename=%s: has no pods, and nothing that makes pods: nothing was %s\n", file, done)
	}
	for _, r := range results {
		if r.HasNoPods {
			fmt.Fprintf(to, "%s skipped: %s\n", status.Printable(r.Object), r.SkipReason)
			continue
		}
		if r.SkipReason != "" {
			fmt.Fprintf(to, "%s left as it is: %s\n", r.Object, r.SkipReason)
			continue
		}
		fmt.Fprintf(to, "%s %s\n", r.Object, done)
		for _, note := range r.Notes {
			fmt.Fprintf(to, "%s: %s\n", r.Object, note)
		}
	}
}

// joinManifests makes one stream of documents from those of several files.
func joinManifests(files []string) string {
	var all strings.Builder
	isJSON := func(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), "{") }
	for i, text := range files {
		if i > 0 && !strings.HasSuffix(files[i-1], "\n") {
			all.WriteString("\n")
		}
		if i > 0 && !strings.HasPrefix(text, "---") && !(isJSON(files[i-1]) && isJSON(text)) {
			all.WriteString("---\n")
		}
		all.WriteString(text)
	}
	return all.String()
}

func readManifests(cmd *cobra.Command, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(cmd.InOrStdin())
	}
	return os.ReadFile(file) // #nosec G304 -- the user names it
}
