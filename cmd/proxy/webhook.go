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

// webhookCommand is `spillway webhook`: a server of its own.
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
		Long: `spillway webhook answers the API server's admission reviews of pods at /inject: with what spillway
inject would add. The MutatingWebhookConfiguration selects the pods; the chart's selects those with
the label spillway/inject: enabled, and those in namespaces with it. Its health is at /livez and
/readyz.

No rule of a namespace refuses a pod because of its sidecar. The pod keeps its QoS class, the sidecar
keeps to LimitRanges and ResourceQuotas, and where it cannot, the pod is created without, with a
warning that names the rule and what to do. For that the webhook follows these objects (it may get,
list and watch them in all namespaces); while it cannot, it adds no sidecars. Sidecars are charged
to quotas, as all containers are. With --namespace-limits=ignore it asks nothing of a cluster and
needs no rights: for clusters without these, which would refuse pods with sidecars. What a pod asks
for as a whole (spec.resources) grows by its part. Rules of policy engines and other webhooks are
not known to it: have them except the container spillway.

Reviews are bounded: a pod of more than 128 containers, or whose review is longer than 3 MiB or of
too many values, is created without a sidecar, with a warning; so is one for whose review there is
no room, nor within half of the webhook's timeout.

Annotations of pods go before the flags, see spillway inject --help.`,
		Example: `  spillway webhook --image registry.example.com/spillway:v1 \
    --tls-cert-file tls.crt --tls-private-key-file tls.key`,
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
		"Present the certificate chain in this PEM `file`, reloaded when it changes. Needed.")
	f.StringVar(&w.KeyFile, "tls-private-key-file", "", "Its private key, a PEM `file`. Needed.")
	f.StringVar(&w.ClientCA, "client-ca-file", "",
		"Answer reviews only to clients whose certificate is signed by one of those in this PEM `file`, reloaded when it "+
			"changes. The API server "+
			"shows one to webhooks that is in the kubeconfig of its --admission-control-config-file. When empty, any client is "+
			"answered.")
	f.StringSliceVar(&w.ClientNames, "client-allowed-names", nil,
		"And only with a common name in this comma-separated `list`. When empty, with any.")
	f.Var(config.NewChoice(&w.Limits, webhook.LimitsRead, webhook.LimitsIgnore), "namespace-limits",
		"Follow what namespaces allow their pods (LimitRanges, ResourceQuotas) and keep sidecars to it, or assume that "+
			"they allow everything.")
	f.StringVar(&w.Kubeconfig, "kubeconfig", "",
		"Follow the cluster in this kubeconfig `file`. When empty, the one whose pod this is.")
	f.DurationVar(&w.shutdownTimeout, "shutdown-timeout", w.shutdownTimeout,
		"On SIGTERM, let reviews under way end for at most this `duration`.")
	f.Var(config.NewChoice(&w.logLevel, logging.Levels...), "log-level", "Log entries of this level and above.")
	f.Var(config.NewChoice(&w.logFormat, logging.Formats...), "log-format", "Write log lines to stderr in this format.")
	sidecarFlags(f, &w.Sidecar)
	return prepare(cmd)
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
