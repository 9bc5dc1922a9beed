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
		Long: `spillway inject reads manifests and writes them with spillway added, as a sidecar, to pods and to
whatever makes pods: unmodified programs that use in-cluster configuration then talk to it as to the
API server. Where a container's variables name a proxy, loopback is added to NO_PROXY. spillway
uninject takes all that out again.

A document without pods stays as it is, byte for byte. One that is changed is written again: YAML
keeps its comments and its order, but not its blank lines, indentation and directives; anchors are
written out where a change would reach what shares them. JSON is indented by two spaces.

Annotations of pods, or of the templates of pods, go before the flags: spillway/inject: disabled
leaves one out; spillway/image, spillway/resources, spillway/flags, spillway/port,
spillway/health-port, spillway/cpu-request, spillway/cpu-limit, spillway/memory-request,
spillway/memory-limit, spillway/place and spillway/allow-host-network are like the flags of these
names.

A pod keeps its QoS class: the sidecar of one that requests nothing requests nothing, unless an
annotation or a limit says a size. What the pod's namespace allows is not looked at: kube-apiserver
refuses pods that break its LimitRanges and ResourceQuotas. The webhook keeps to them.`,
		Example: `  spillway inject --image registry.example.com/spillway:v1 -f deploy.yaml | kubectl apply -f -
  kubectl get deploy agent -o yaml | spillway inject --image registry.example.com/spillway:v1 | kubectl apply -f -`,
	}
	file := manifestFlag(cmd)
	sidecarFlags(cmd.Flags(), &o)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.Validate(); err != nil {
			return err
		}
		return rewrite(cmd, *file, "injected", func(text string) (string, []inject.ObjectResult, error) {
			return inject.Manifest(text, o)
		})
	}
	return prepare(cmd)
}

// newUninject returns `spillway uninject`.
func newUninject() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "uninject [flags]",
		Short: "Take out of manifests what spillway inject has added",
		Long: `spillway uninject reads manifests and writes them without the sidecars that spillway inject or the
webhook has added. Such a document says again what it said, but for lists and mappings that were
empty; its text is written again, as by spillway inject. All others stay as they are, byte for byte.`,
		Example: `  spillway uninject -f injected.yaml | kubectl apply -f -`,
	}
	file := manifestFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return rewrite(cmd, *file, "uninjected", inject.Remove) }
	return prepare(cmd)
}

func manifestFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("filename", "f", "-",
		"Read the manifests in this `file`, YAML or JSON; - is standard input.")
}

// rewrite rewrites manifests. What became of each object goes to standard error; after an error
// nothing goes to standard output.
func rewrite(cmd *cobra.Command, file, did string, do func(string) (string, []inject.ObjectResult, error)) error {
	text, err := readManifests(cmd, file)
	if err != nil {
		return fmt.Errorf("--filename=%s: cannot be read: %s", file, config.Cause(err))
	}
	out, done, err := do(string(text))
	if err != nil {
		return err
	}
	for _, d := range done {
		if d.SkipReason != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s left as it is: %s\n", d.Object, d.SkipReason)
			continue
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s %s\n", d.Object, did)
		for _, n := range d.Notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", d.Object, n)
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

// sidecarFlags say what sidecars are like.
func sidecarFlags(f *pflag.FlagSet, o *inject.Options) {
	f.StringVar(&o.Image, "image", o.Image, "The `image` of spillway, where nodes find it. Needed.")
	f.StringVar((*string)(&o.PullPolicy), "image-pull-policy", string(o.PullPolicy),
		"Nodes pull it by this `policy`: Always, IfNotPresent or Never. When empty, as Kubernetes chooses.")
	f.StringVar(&o.Resources, "resources", o.Resources,
		"What sidecars mirror, a comma-separated `list` as for spillway itself.")
	f.StringSliceVar(&o.Flags, "flags", o.Flags,
		"More flags for sidecars: a comma-separated `list`, such as --history-bytes=8Mi,--log-level=debug. In the "+
			"annotation they "+
			"are separated by spaces.")
	f.Int32Var(&o.Port, "port", o.Port, "The `port` on loopback on which they serve their pod.")
	f.Int32Var(&o.HealthPort, "health-port", o.HealthPort, "The `port` on which they answer the kubelet's probes.")
	f.StringVar(&o.CPURequest, "cpu-request", o.CPURequest,
		"How much CPU is set aside for each, a `quantity`. When empty, none. Pods that request nothing themselves have a "+
			"sidecar that requests nothing, unless it has a limit.")
	f.StringVar(&o.CPULimit, "cpu-limit", o.CPULimit,
		"How much CPU each may use, a `quantity`. When empty, there is no limit, since one holds up events whenever it is "+
			"reached, but where a Guaranteed pod or, for the webhook, its namespace makes one necessary.")
	f.StringVar(&o.MemoryRequest, "memory-request", o.MemoryRequest,
		"How much memory is set aside for each, a `quantity`. When empty, none. For pods that request nothing as with "+
			"--cpu-request.")
	f.StringVar(&o.MemoryLimit, "memory-limit", o.MemoryLimit,
		"How much memory each may use, a `quantity`, which it keeps to. When empty, there is no limit but where one is "+
			"necessary.")
	f.StringVar(&o.Place, "place", o.Place,
		"Their `place` among the init containers: first, last, after:NAME, or auto, which is behind the proxy of a service "+
			"mesh that is a native "+
			"sidecar, and else first. Init containers in front of them do not go through them.")
	f.BoolVar(&o.AllowHostNetwork, "allow-host-network", o.AllowHostNetwork,
		"Also add sidecars to pods in the network of their node, where every process of the node can connect to them (and "+
			"gets nothing without a token of the pod's service account), and where the ports must be free.")
}
