package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/logging"
	"spillway/internal/sidecar/inject"
	"spillway/internal/sidecar/webhook"
)

// webhookCommand is the settings of `spillway webhook`, as its flags are named.
type webhookCommand struct {
	webhook.Webhook
	shutdownTimeout time.Duration
	logLevel        string
	logFormat       string
}

// newWebhook returns `spillway webhook`, which logs to sink.
func newWebhook(sink *logging.Output) *cobra.Command {
	w := &webhookCommand{
		Webhook:         webhook.Webhook{Sidecar: inject.Defaults(), Limits: webhook.LimitsRead},
		shutdownTimeout: 10 * time.Second, logLevel: "info", logFormat: "json",
	}
	w.Sidecar.CheckFlags = config.CheckSidecarFlags
	cmd := &cobra.Command{
		Use:   "webhook [flags]",
		Short: "Add spillway to pods when they are created: a mutating admission webhook",
		Long: `spillway webhook adds spillway as a sidecar to pods while they are created, as spillway inject does to
manifests. It is a mutating admission webhook: the API server sends it reviews of pods at /inject.
The MutatingWebhookConfiguration selects the pods. The chart selects pods with the label
spillway.example.com/inject: enabled, and pods in namespaces with that label.

  spillway webhook --image registry.example.com/spillway:v1 \
    --tls-cert-file tls.crt --tls-private-key-file tls.key

It prints its log to stderr, one line of JSON for each entry, and runs until SIGTERM or SIGINT. Its
health is at /livez and /readyz.

It fails with code 1 if a flag is wrong, or if it cannot read its certificate or listen on its
address. It never refuses a pod. If a pod cannot have a sidecar, it is created without one. The
client that creates the pod then gets a warning with the cause and the remedy. The pod has the same
text in the annotation spillway.example.com/not-injected:

  - The namespace has too little room, or a rule that a sidecar may break. A pod keeps its QoS class,
    and its sidecar keeps to LimitRanges and ResourceQuotas. Quotas are charged for sidecars as for
    other containers. If the pod requests resources as a whole (spec.resources), its requests grow by
    the sidecar's part.
  - The webhook does not know what the namespace allows. It needs the rights to get, list and watch
    LimitRanges and ResourceQuotas in all namespaces. With --namespace-limits=ignore it needs no
    rights, and the API server refuses pods whose sidecars break a rule.
  - The pod has more than 128 containers, or its review is longer than 3 MiB or has too many values.
  - The review did not arrive, or there was no room for it, within half of the webhook's timeout.

It does not know the rules of policy engines and other webhooks. Exempt the container spillway from
these rules. Annotations of pods override the flags, as spillway inject --help describes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := w.validate(); err != nil {
				return err
			}
			return w.run(cmd.Context(), logging.New(w.logLevel, w.logFormat, sink))
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.Listen, "listen", ":8443", "Serve HTTPS on this `address`.")
	f.StringVar(&w.CertFile, "tls-cert-file", "",
		"Present the certificate chain in this PEM `file`, and reload the file when it changes. Required.")
	f.StringVar(&w.KeyFile, "tls-private-key-file", "", "The private key of --tls-cert-file, a PEM `file`. Required.")
	f.StringVar(&w.ClientCA, "client-ca-file", "",
		"Answer only clients whose certificate an authority in this PEM `file` has signed. The file is read again when it "+
			"changes. The API server presents the certificate in the kubeconfig of its --admission-control-config-file. When "+
			"empty, every client is answered.")
	f.StringSliceVar(&w.ClientNames, "client-allowed-names", nil,
		"Answer only clients whose certificate has a common name in this comma-separated `list`. When empty, any name "+
			"will do.")
	f.Var(config.NewChoice(&w.Limits, webhook.LimitsRead, webhook.LimitsIgnore), "namespace-limits",
		"read: follow LimitRanges and ResourceQuotas, and make sidecars keep to these. ignore: assume that namespaces "+
			"allow everything.")
	f.StringVar(&w.Kubeconfig, "kubeconfig", "",
		"Follow the cluster in this kubeconfig `file`. When empty, follow the cluster of the webhook's pod. Outside pods, "+
			"that is the cluster of the files that kubectl reads.")
	f.DurationVar(&w.shutdownTimeout, "shutdown-timeout", w.shutdownTimeout,
		"On SIGTERM, wait for reviews in progress for at most this `duration`.")
	f.Var(config.NewChoice(&w.logLevel, logging.Levels...), "log-level", "Log entries of this level and above.")
	f.Var(config.NewChoice(&w.logFormat, logging.Formats...), "log-format", "Write log lines to stderr in this format.")
	w.Sidecar.AddFlags(f)
	return newSubcommand(cmd)
}

func (w *webhookCommand) validate() error {
	if err := w.Validate(); err != nil {
		return err
	}
	if w.shutdownTimeout < 0 {
		return fmt.Errorf("--shutdown-timeout=%s: must not be negative", w.shutdownTimeout)
	}
	return nil
}

// run serves until ctx ends or the process gets a signal.
func (w *webhookCommand) run(ctx context.Context, log *zap.Logger) error {
	life := watchSignals(ctx, w.shutdownTimeout, log)
	defer life.release()
	return w.Run(life.drain, life.stop, log)
}
