// Package webhook runs the mutating admission webhook that adds sidecars to pods: its listener,
// what it follows of the cluster, and its memory. Package admission answers the reviews.
//
// Invariant: what it holds of a cluster is what the cluster's namespaces allow their pods, and
// nothing with LimitsIgnore. While it does not know what a namespace allows, pods are created
// without sidecars.
package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
	"spillway/internal/flowcontrol"
	"spillway/internal/listen"
	"spillway/internal/memory"
	"spillway/internal/sidecar/admission"
	"spillway/internal/sidecar/inject"
	"spillway/internal/sidecar/limits"
	"spillway/internal/tlsconn"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
)

// Values of Webhook.Limits.
const (
	LimitsRead   = "read"   // keep sidecars to what namespaces allow
	LimitsIgnore = "ignore" // namespaces allow everything
)

// rulesTimeout is how long the first review waits for what namespaces allow. After that, pods are
// created without sidecars.
const rulesTimeout = 10 * time.Second

// Webhook is the settings of a webhook, as its flags are named.
type Webhook struct {
	Sidecar           inject.Options
	Listen            string // address
	CertFile, KeyFile string
	ClientCA          string // file; empty: any client is answered
	ClientNames       []string
	Limits            string // LimitsRead or LimitsIgnore
	Kubeconfig        string // path; in-cluster configuration when empty
}

// Validate checks the settings. An error is one line that names the flag of the setting.
func (w *Webhook) Validate() error {
	if err := w.Sidecar.Validate(); err != nil {
		return err
	}
	if _, err := listen.SplitAddress(w.Listen); err != nil {
		return fmt.Errorf("--listen=%s: %w", w.Listen, err)
	}
	if w.CertFile == "" || w.KeyFile == "" {
		return errors.New("--tls-cert-file and --tls-private-key-file are needed: the API server talks to webhooks over " +
			"TLS only")
	}
	if len(w.ClientNames) > 0 && w.ClientCA == "" {
		return fmt.Errorf("--client-allowed-names=%s: needs --client-ca-file, by which names are verified",
			strings.Join(w.ClientNames, ","))
	}
	if w.Kubeconfig != "" && w.Limits == LimitsIgnore {
		return fmt.Errorf("--kubeconfig=%s: has no meaning with --namespace-limits=ignore", w.Kubeconfig)
	}
	return nil
}

// Run serves until drain ends, and lets reviews under way end until stop does.
func (w *Webhook) Run(drain, stop context.Context, log *zap.Logger) error {
	pair, err := listen.ReadCertificate(w.CertFile, w.KeyFile, log)
	if err != nil {
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.Get, SessionTicketsDisabled: true}
	verify, err := w.newVerifier(log)
	if err != nil {
		return err
	}
	if verify != nil {
		config.ClientAuth = tls.RequestClientCert // verified per review: probes have none
		config.VerifyConnection = tlsconn.CheckCertificates
	}
	listener, err := listen.Open(w.Listen, listen.Socket{})
	if err != nil {
		return fmt.Errorf("--listen=%s: %s", w.Listen, listen.Problem(err))
	}
	rules, held, end, err := w.followRules(drain, log)
	if err != nil {
		_ = listener.Close()
		return err
	}
	defer end()
	limit, err := limitMemory(int64(held) * ruleBytes)
	if err != nil {
		log.Warn("the memory limit of this container cannot be read", zap.Error(err))
	}
	server := admission.Server(w.newHandler(verify, rules, log), config, log)
	served := make(chan error, 1)
	go func() { served <- tlsconn.Serve(server, listener) }()
	log.Info("serving admission reviews", zap.Stringer("address", listener.Addr()), zap.Int64("gomemlimit", limit))
	select {
	case err := <-served:
		return fmt.Errorf("serving admission reviews on %s: %w", listener.Addr(), err)
	case <-drain.Done():
	}
	if err := server.Shutdown(stop); err != nil {
		log.Warn("reviews under way did not end in time", zap.Error(err))
		_ = server.Close()
	}
	log.Info("stopped")
	return nil
}

// followRules follows what namespaces allow, until the function is called that it returns. It waits
// until that is known, for rulesTimeout, and tells how many objects that are.
func (w *Webhook) followRules(ctx context.Context, log *zap.Logger) (rules admission.RulesFunc, held int, end func(),
	err error) {
	if w.Limits == LimitsIgnore {
		return nil, 0, func() {}, nil
	}
	source, err := transport.LoadConfig(w.Kubeconfig)
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
	all, err := limits.New(client.Config(), client.HTTP(), log)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("--namespace-limits=read: %w", err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx)) // reviews go on after ctx
	var done sync.WaitGroup
	done.Go(func() { all.Run(running) })
	done.Go(func() { _ = transports.Run(running) }) // it ends with its context, without an error
	patience, forget := context.WithTimeout(ctx, rulesTimeout)
	defer forget()
	if err := all.Wait(patience); err != nil {
		log.Warn("it is not known what namespaces allow their pods: they get no sidecars until it is; allow get, list and "+
			"watch of limitranges and resourcequotas", zap.Error(err))
	}
	return all.Of, all.Len(), func() { cancel(); done.Wait(); client.Close() }, nil
}

// newVerifier makes what verifies those that send reviews; nil: any may.
func (w *Webhook) newVerifier(log *zap.Logger) (admission.VerifyFunc, error) {
	if w.ClientCA == "" {
		return nil, nil
	}
	authority, err := auth.NewAuthority(w.ClientCA, clock.RealClock{}, log)
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file=%s: %w", w.ClientCA, err)
	}
	return func(ctx context.Context, from netip.Addr, peer []*x509.Certificate) error {
		err := authority.Verify(ctx, flowcontrol.AddrFlow(from), auth.NewChain(peer), time.Now())
		if err != nil {
			return err
		}
		if name := peer[0].Subject.CommonName; len(w.ClientNames) > 0 && !slices.Contains(w.ClientNames, name) {
			return fmt.Errorf("its common name %q is not in --client-allowed-names", name)
		}
		return nil
	}, nil
}

const (
	// budgetBytes is what the webhook uses at most of memory, whatever the container's limit:
	// what it holds of reviews is bounded (see package admission). What it holds of the cluster
	// comes on top: ruleBytes for each LimitRange and ResourceQuota, 3,180 as measured.
	budgetBytes = 88 << 20
	ruleBytes   = 4 << 10
)

// limitMemory tells the garbage collector to keep to budgetBytes and what is held besides, or to
// the container's limit if that is less. It returns Go's part of it.
func limitMemory(held int64) (int64, error) {
	bytes, err := memory.Budget(0)
	if bytes == 0 || bytes > budgetBytes+held {
		bytes = budgetBytes + held
	}
	limit := memory.NewLimit(bytes)
	if limit == nil { // the environment says that there is none
		return 0, err
	}
	return limit.Bytes(), err
}

// newHandler answers reviews and probes. That it ends shows in its listener, which is gone.
func (w *Webhook) newHandler(verify admission.VerifyFunc, rules admission.RulesFunc, log *zap.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /inject", admission.Handler(w.Sidecar, verify, rules, log))
	for _, probe := range []string{"/livez", "/readyz"} {
		mux.HandleFunc("GET "+probe, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	}
	return mux
}
