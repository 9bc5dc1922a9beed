package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spillway/internal/config"
	"spillway/internal/sidecar/inject"
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
pods stays as it is, byte for byte. A document that it changes is written again. YAML keeps its
comments and its order, but not its blank lines, indentation and directives. An anchor is written out
if a change would also reach its aliases. JSON is indented by two spaces.

It fails with code 1, and prints no manifests, if a manifest cannot be read, if a flag or an
annotation is wrong, or if a pod cannot have a sidecar. It does not know what a pod's namespace
allows: kube-apiserver refuses pods that break LimitRanges and ResourceQuotas. Sidecars that the
webhook adds keep to them.

These annotations of a pod, or of a template of pods, override the flags of the same names:
spillway/image, spillway/resources, spillway/flags, spillway/port, spillway/health-port,
spillway/cpu-request, spillway/cpu-limit, spillway/memory-request, spillway/memory-limit,
spillway/place and spillway/allow-host-network. A pod with spillway/inject: disabled gets no sidecar.

A pod keeps its QoS class. The sidecar of a pod that requests nothing requests nothing, unless an
annotation or a limit sets a size. If variables of a container name a proxy, its NO_PROXY gets the
loopback address.`,
		Example: `  kubectl get deploy agent -o yaml | spillway inject --image registry.example.com/spillway:v1 |
    kubectl apply -f -`,
	}
	file := manifestFlag(cmd)
	sidecarFlags(cmd.Flags(), &o)
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
as "deployment/agent uninjected". A document without a sidecar stays as it is, byte for byte. A
document that it changes has the content that it had when the sidecar was added, except lists and
mappings that were empty. Its text is written again, as by spillway inject.

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
		"Read the manifests in this `file`, YAML or JSON; - is standard input.")
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
	for _, r := range results {
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

// sidecarFlags declares the flags that describe sidecars.
func sidecarFlags(f *pflag.FlagSet, o *inject.Options) {
	f.StringVar(&o.Image, "image", o.Image, "The `image` of spillway, which nodes can pull. Required.")
	f.StringVar((*string)(&o.PullPolicy), "image-pull-policy", string(o.PullPolicy),
		"Nodes pull it by this `policy`: Always, IfNotPresent or Never. When empty, as Kubernetes chooses.")
	f.StringVar(&o.Resources, "resources", o.Resources,
		"Sidecars mirror the resources in this comma-separated `list`, as spillway itself does by its flag of this name.")
	f.StringSliceVar(&o.Flags, "flags", o.Flags,
		"More flags for sidecars: a comma-separated `list`, such as --history-bytes=8Mi,--log-level=debug. In the "+
			"annotation they are separated by spaces.")
	f.Int32Var(&o.Port, "port", o.Port, "Sidecars serve their pod on this `port` of loopback.")
	f.Int32Var(&o.HealthPort, "health-port", o.HealthPort, "Sidecars answer the kubelet's probes on this `port`.")
	f.StringVar(&o.CPURequest, "cpu-request", o.CPURequest,
		"Request this `quantity` of CPU for each sidecar. When empty, none. The sidecar of a pod that requests nothing "+
			"requests nothing, unless it has a limit.")
	f.StringVar(&o.CPULimit, "cpu-limit", o.CPULimit,
		"Limit each sidecar to this `quantity` of CPU. A sidecar that reaches its limit delays events. So when this is "+
			"empty, sidecars have a limit only in Guaranteed pods, and with the webhook in namespaces with a rule about CPU.")
	f.StringVar(&o.MemoryRequest, "memory-request", o.MemoryRequest,
		"Request this `quantity` of memory for each sidecar. When empty, none. Pods that request nothing are treated as "+
			"with --cpu-request.")
	f.StringVar(&o.MemoryLimit, "memory-limit", o.MemoryLimit,
		"Limit each sidecar to this `quantity` of memory, which it keeps to. When empty, sidecars have a limit only in "+
			"Guaranteed pods, and with the webhook in namespaces with a rule about memory.")
	f.StringVar(&o.Place, "place", o.Place,
		"The `place` of sidecars among the init containers: first, last, after:NAME, or auto. auto is behind the proxy of a "+
			"service mesh if that is a native sidecar, and otherwise first. Init containers in front of a sidecar do not go "+
			"through it.")
	f.BoolVar(&o.AllowHostNetwork, "allow-host-network", o.AllowHostNetwork,
		"Also add sidecars to pods in the network of their node, where the ports must be free. Every process of the node "+
			"can connect to them, but gets nothing without a token of the pod's service account.")
}
