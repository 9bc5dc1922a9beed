package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"spillway/internal/admission"
	"spillway/internal/allowance"
	"spillway/internal/auth"
	"spillway/internal/inject"
	"spillway/internal/listen"
	"spillway/internal/logging"
	"spillway/internal/memory"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
)

// webhook is `spillway webhook`: a server of its own, which holds of a cluster what its namespaces
// allow their pods, and nothing if it is not to.
type webhook struct {
	sidecar           inject.Options
	listen            string
	certFile, keyFile string
	clientCA          string
	clientNames       []string
	limits            string
	kubeconfig        string
	linger            time.Duration
	logLevel          string
	logFormat         string
}

// newWebhook returns `spillway webhook`, which logs to stderr.
func newWebhook(stderr io.Writer) *cobra.Command {
	w := &webhook{sidecar: inject.Defaults(), limits: limitsRead, linger: 10 * time.Second, logLevel: "info",
		logFormat: "json"}
	w.sidecar.CheckFlags = checkSidecarFlags
	cmd := &cobra.Command{
		Use:   "webhook [flags]",
		Short: "Add spillway to pods when they are created: a mutating admission webhook",
		Long: `spillway webhook answers the API server's admission reviews of pods at /inject: with what spillway inject would add. Which pods it
is asked about is up to the MutatingWebhookConfiguration; the chart's asks about those with the label spillway/inject: enabled,
and those in namespaces with it. /livez and /readyz tell how it is.

It never keeps a pod from being created: a sidecar is of a size that its namespace and its pod allow, and where there is none,
the pod is created without, with a warning that says why and what to do. For that it follows LimitRanges and ResourceQuotas (it
may get, list and watch them in all namespaces); while it cannot, it adds no sidecars. With --namespace-limits=ignore it asks
nothing of a cluster and needs no rights: for clusters without these, which would refuse pods with sidecars. Guaranteed pods stay
Guaranteed, with a sidecar whose requests are its limits. What a pod asks for as a whole (spec.resources) grows by its part. Rules
of policy engines and other webhooks are not known to it: have them except the container spillway.

Reviews are bounded: a pod of more than 128 containers, or whose review is longer than 3 MiB or of too many values, is created
without a sidecar, with a warning; so is one for whose review there is no room, nor within half of the webhook's timeout.

Annotations of pods go before the flags, see spillway inject --help.`,
		Example: `  spillway webhook --image registry.example.com/spillway:1 --tls-cert-file tls.crt --tls-private-key-file tls.key`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := w.validate(); err != nil {
				return err
			}
			log := logging.New(w.logLevel, w.logFormat, stderr)
			defer func() { _ = log.Sync() }()
			return w.run(cmd.Context(), log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.listen, "listen", ":8443", "Serve HTTPS on this `address`.")
	f.StringVar(&w.certFile, "tls-cert-file", "",
		"Present the certificate chain in this PEM `file`, reloaded when it changes. Needed.")
	f.StringVar(&w.keyFile, "tls-private-key-file", "", "Its private key, a PEM `file`. Needed.")
	f.StringVar(&w.clientCA, "client-ca-file", "", "Answer reviews only to clients whose certificate is signed by one of those in this PEM `file`, reloaded when it changes. The API server "+
		"shows one to webhooks that is in the kubeconfig of its --admission-control-config-file. When empty, any client is answered.")
	f.StringSliceVar(&w.clientNames, "client-allowed-names", nil,
		"And only with a common name in this comma-separated `list`. When empty, with any.")
	f.Var(newChoice(&w.limits, limitsRead, limitsIgnore), "namespace-limits", "Follow what namespaces allow their pods (LimitRanges, ResourceQuotas) and size sidecars by it, or take it that they "+
		"allow everything.")
	f.StringVar(&w.kubeconfig, "kubeconfig", "",
		"Follow the cluster in this kubeconfig `file`. When empty, the one whose pod this is.")
	f.DurationVar(&w.linger, "linger", w.linger, "On SIGTERM, let reviews under way end for at most this `duration`.")
	f.Var(newChoice(&w.logLevel, logging.Levels...), "log-level", "Log entries of this level and above.")
	f.Var(newChoice(&w.logFormat, logging.Formats...), "log-format", "Write log lines to stderr in this format.")
	sidecarFlags(f, &w.sidecar)
	return prepare(cmd)
}

func (w *webhook) validate() error {
	if err := w.sidecar.Validate(); err != nil {
		return err
	}
	if _, err := listen.SplitAddress(w.listen); err != nil {
		return fmt.Errorf("--listen=%s: %w", w.listen, err)
	}
	if w.certFile == "" || w.keyFile == "" {
		return errors.New("--tls-cert-file and --tls-private-key-file are needed: the API server talks to webhooks over TLS only")
	}
	if len(w.clientNames) > 0 && w.clientCA == "" {
		return fmt.Errorf("--client-allowed-names=%s: needs --client-ca-file, by which names are verified",
			strings.Join(w.clientNames, ","))
	}
	if w.kubeconfig != "" && w.limits == limitsIgnore {
		return fmt.Errorf("--kubeconfig=%s: has no meaning with --namespace-limits=ignore", w.kubeconfig)
	}
	if w.linger < 0 {
		return fmt.Errorf("--linger=%s: must not be negative", w.linger)
	}
	return nil
}

// run serves until ctx ends or the process is told to.
func (w *webhook) run(ctx context.Context, log *zap.Logger) error {
	pair, err := listen.ReadCertificate(w.certFile, w.keyFile, log)
	if err != nil {
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.Get, SessionTicketsDisabled: true}
	verify, err := w.clients(log)
	if err != nil {
		return err
	}
	if verify != nil {
		config.ClientAuth = tls.RequestClientCert // verified per review: probes have none
	}
	listener, err := (&options{}).bind("listen", w.listen)
	if err != nil {
		return err
	}
	life := watchSignals(ctx, w.linger, log)
	defer life.finish()
	limits, held, stop, err := w.follow(life.drain, log)
	if err != nil {
		_ = listener.Close()
		return err
	}
	defer stop()
	limit, err := limitMemory(int64(held) * allowanceBytes)
	if err != nil {
		log.Warn("the memory limit of this container cannot be read", zap.Error(err))
	}
	server := admission.Server(w.handler(verify, limits, log), config, log)
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	log.Info("serving admission reviews", zap.Stringer("address", listener.Addr()), zap.Int64("goLimit", limit))
	select {
	case err := <-served:
		return fmt.Errorf("serving admission reviews on %s: %w", listener.Addr(), err)
	case <-life.drain.Done():
	}
	if err := server.Shutdown(life.stop); err != nil {
		log.Warn("reviews under way did not end in time", zap.Error(err))
		_ = server.Close()
	}
	log.Info("stopped")
	return nil
}

const (
	limitsRead   = "read"
	limitsIgnore = "ignore"

	// limitsPatience is how long the first review waits for what namespaces allow. After that, pods
	// are created without sidecars.
	limitsPatience = 10 * time.Second
)

// follow follows what namespaces allow, until the function is called that it returns. It waits
// until that is known, for limitsPatience, and tells how many objects that are.
func (w *webhook) follow(ctx context.Context, log *zap.Logger) (limits admission.Limits, held int, stop func(),
	err error) {
	if w.limits == limitsIgnore {
		return nil, 0, func() {}, nil
	}
	source, err := upstream.LoadConfig(w.kubeconfig)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("--namespace-limits=read: %w; or say --namespace-limits=ignore", err)
	}
	transports, err := transport.New(source, log)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("--namespace-limits=read: %w", err)
	}
	client, err := upstream.NewClient(transports)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("--namespace-limits=read: %w", err)
	}
	all, err := allowance.New(client.Config(), client.HTTP(), log)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("--namespace-limits=read: %w", err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx)) // reviews go on after ctx
	var done sync.WaitGroup
	done.Go(func() { all.Run(running) })
	done.Go(func() { _ = transports.Run(running) }) // it ends with its context, without an error
	patience, end := context.WithTimeout(ctx, limitsPatience)
	defer end()
	if err := all.Wait(patience); err != nil {
		log.Warn("it is not known what namespaces allow their pods: they get no sidecars until it is; allow get, list and watch of limitranges and resourcequotas", zap.Error(err))
	}
	limits = func(namespace string) (*inject.Limits, error) {
		ranges, quotas, err := all.Of(namespace)
		return &inject.Limits{Ranges: ranges, Quotas: quotas}, err
	}
	return limits, all.Len(), func() { cancel(); done.Wait(); client.Close() }, nil
}

// clients is what verifies those that send reviews; nil: any may.
func (w *webhook) clients(log *zap.Logger) (func([]*x509.Certificate) error, error) {
	if w.clientCA == "" {
		return nil, nil
	}
	authority, err := auth.NewAuthority(w.clientCA, clock.RealClock{}, log)
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file=%s: %w", w.clientCA, err)
	}
	return func(peer []*x509.Certificate) error {
		if err := authority.Verify(peer, time.Now()); err != nil {
			return err
		}
		if name := peer[0].Subject.CommonName; len(w.clientNames) > 0 && !slices.Contains(w.clientNames, name) {
			return fmt.Errorf("its common name %q is not in --client-allowed-names", name)
		}
		return nil
	}, nil
}

const (
	// webhookBudget is what the webhook uses at most of memory, whatever the container's limit:
	// what it holds of reviews is bounded (see package admission). What it holds of the cluster
	// comes on top: allowanceBytes for each LimitRange and ResourceQuota, 3,180 as measured.
	webhookBudget  = 88 << 20
	allowanceBytes = 4 << 10
)

// limitMemory tells the garbage collector to keep to webhookBudget and what is held besides, or to
// the container's limit if that is less. It returns Go's part of it.
func limitMemory(held int64) (int64, error) {
	bytes, err := memory.Budget(0)
	if bytes == 0 || bytes > webhookBudget+held {
		bytes = webhookBudget + held
	}
	limit := memory.NewLimit(bytes)
	if limit == nil { // the environment says that there is none
		return 0, err
	}
	return limit.Bytes(), err
}

// handler answers reviews and probes. That it ends shows in its listener, which is gone.
func (w *webhook) handler(verify func([]*x509.Certificate) error, limits admission.Limits,
	log *zap.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /inject", admission.Handler(w.sidecar, verify, limits, log))
	for _, probe := range []string{"/livez", "/readyz"} {
		mux.HandleFunc("GET "+probe, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	}
	return mux
}
