package main

import (
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"spillway/internal/listen"
	"spillway/internal/sidecar"
)

func (o *options) sidecarFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.sidecarDir, "sidecar-dir", o.sidecarDir,
		"Be the API server of the other containers of this pod: write to this `folder` what they have to find in "+sidecar.AccountDir+" - the pod's token, again "+
			"whenever it is rotated, its namespace, and the certificate to trust on --listen-tls, which must be on loopback and is for the pod's own "+
			"service account alone. spillway inject sets this.")
	fs.StringVar(&o.sidecarKeyDir, "sidecar-key-dir", o.sidecarKeyDir,
		"Keep the key for that certificate in this `folder`, so that they still trust it when spillway was started again. It had better be in memory, "+
			"and mounted by no other container. When empty, the key is lost with the process.")
}

// validateSidecar refuses what would have a sidecar serve others than its pod, or be trusted by nobody.
func (o *options) validateSidecar() error {
	if o.sidecarDir == "" {
		if o.sidecarKeyDir != "" {
			return o.refuse("sidecar-key-dir", o.sidecarKeyDir, "has a meaning only with --sidecar-dir")
		}
		return nil
	}
	if o.kubeconfig != "" {
		return o.refuse("sidecar-dir", o.sidecarDir, "copies the service account of the pod, which spillway has to use itself: leave --kubeconfig out")
	}
	if address, err := listen.SplitAddress(o.listenTLS); err != nil || !listen.IsLoopback(address.Host) {
		return o.refuse("sidecar-dir", o.sidecarDir, "needs --listen-tls on loopback, such as --listen-tls=127.0.0.1:6443")
	}
	for _, f := range []struct {
		flag string
		set  bool
	}{
		{"tls-cert-file", o.tlsCertFile != ""}, {"client-ca-file", o.clientCAFile != ""}, {"requestheader-client-ca-file", o.frontProxy.caFile != ""},
		{"api-audiences", len(o.apiAudiences) > 0}, {"watch-rights", o.watchRights}, {"authorization-local-rbac", o.localRBAC},
		{"authentication-local-jwks", o.localTokens != localTokensNone}, {"insecure-allow-all", o.insecureAllowAll},
	} {
		if f.set {
			return o.refuse("sidecar-dir", o.sidecarDir, "is for tokens of the pod's own service account, which leaves no meaning to --"+f.flag)
		}
	}
	if o.sidecarKeyDir != "" && strings.TrimRight(o.sidecarKeyDir, "/") == strings.TrimRight(o.sidecarDir, "/") {
		return o.refuse("sidecar-key-dir", o.sidecarKeyDir, "must not be --sidecar-dir, which other containers read")
	}
	return nil
}

// podFiles is what a sidecar shows the other containers of its pod, and where they find it.
type podFiles struct {
	identity   *sidecar.Identity
	projection *sidecar.Projection
}

// newPodFiles writes them; nil if this is no sidecar. They are there before anything is served.
func newPodFiles(o *options, log *zap.Logger) (*podFiles, error) {
	if o.sidecarDir == "" {
		return nil, nil
	}
	identity, err := sidecar.KeepIdentity(o.sidecarKeyDir, time.Now())
	if err != nil {
		return nil, o.refuse("sidecar-key-dir", o.sidecarKeyDir, "cannot be used: "+sidecar.Cause(err)+"; mount an emptyDir there")
	}
	projection := sidecar.NewProjection(sidecar.AccountDir, o.sidecarDir, identity.Authority, log)
	if err := projection.Write(); err != nil {
		return nil, o.refuse("sidecar-dir", o.sidecarDir, "cannot be filled: "+sidecar.Cause(err)+"; mount an emptyDir there")
	}
	return &podFiles{identity, projection}, nil
}
