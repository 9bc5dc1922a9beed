package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"spillway/internal/admission"
	"spillway/internal/inject"
)

// webhook is `spillway webhook`: a server of its own, which holds nothing of a cluster and asks it nothing.
type webhook struct {
	sidecar     inject.Options
	listen      string
	certificate certificate
	linger      time.Duration
	logLevel    string
	logFormat   string
}

// newWebhook returns `spillway webhook`, which logs to stderr.
func newWebhook(stderr io.Writer) *cobra.Command {
	w := &webhook{sidecar: inject.Defaults(), linger: 10 * time.Second, logLevel: "info", logFormat: "json"}
	w.sidecar.CheckFlags = checkSidecarFlags
	cmd := &cobra.Command{
		Use:   "webhook [flags]",
		Short: "Add spillway to pods when they are created: a mutating admission webhook",
		Long: `spillway webhook answers the API server's admission reviews of pods at /inject: with what spillway inject would add. Which pods it
is asked about is up to the MutatingWebhookConfiguration; the chart's asks about those with the label spillway/inject: enabled,
and those in namespaces with it. It never keeps a pod from being created. It needs no rights. /livez and /readyz tell how it is.

Annotations of pods go before the flags, see spillway inject --help.`,
		Example: `  spillway webhook --image registry.example.com/spillway:1 --tls-cert-file tls.crt --tls-private-key-file tls.key`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := w.validate(); err != nil {
				return err
			}
			log := newLogger(w.logLevel, w.logFormat, stderr)
			defer func() { _ = log.Sync() }()
			return w.run(cmd.Context(), log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.listen, "listen", ":8443", "Serve HTTPS on this `address`.")
	f.StringVar(&w.certificate.certFile, "tls-cert-file", "", "Present the certificate chain in this PEM `file`, reloaded when it changes. Needed.")
	f.StringVar(&w.certificate.keyFile, "tls-private-key-file", "", "Its private key, a PEM `file`. Needed.")
	f.DurationVar(&w.linger, "linger", w.linger, "On SIGTERM, let reviews under way end for at most this `duration`.")
	f.Var(newChoice(&w.logLevel, logLevels...), "log-level", "Log entries of this level and above.")
	f.Var(newChoice(&w.logFormat, logFormats...), "log-format", "Write log lines to stderr in this format.")
	sidecarFlags(f, &w.sidecar)
	return prepare(cmd)
}

func (w *webhook) validate() error {
	if err := w.sidecar.Validate(); err != nil {
		return err
	}
	if _, err := splitAddress(w.listen); err != nil {
		return fmt.Errorf("--listen=%s: %w", w.listen, err)
	}
	if w.certificate.certFile == "" || w.certificate.keyFile == "" {
		return errors.New("--tls-cert-file and --tls-private-key-file are needed: the API server talks to webhooks over TLS only")
	}
	if w.linger < 0 {
		return fmt.Errorf("--linger=%s: must not be negative", w.linger)
	}
	return nil
}

// run serves until ctx ends or the process is told to.
func (w *webhook) run(ctx context.Context, log *zap.Logger) error {
	w.certificate.log = log
	if _, err := w.certificate.get(nil); err != nil {
		return err
	}
	listener, err := (&options{}).bind("listen", w.listen)
	if err != nil {
		return err
	}
	life := watchSignals(ctx, w.linger, log)
	defer life.finish()
	server := &http.Server{
		Handler:           w.handler(log),
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: w.certificate.get},
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          zap.NewStdLog(log),
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	log.Info("serving admission reviews", zap.Stringer("address", listener.Addr()))
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

// handler answers reviews and probes. That it ends shows in its listener, which is gone.
func (w *webhook) handler(log *zap.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /inject", admission.Handler(w.sidecar, log))
	for _, probe := range []string{"/livez", "/readyz"} {
		mux.HandleFunc("GET "+probe, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	}
	return mux
}
