package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"spillway/internal/listen"
	"spillway/internal/rotation"
)

// minHistoryBytes catches a size that lost its unit: --history-bytes=64, --encoding-cache-bytes=64.
const minHistoryBytes = 4 << 10

// minBudget is what the proxy needs for itself, and catches a size that lost its unit.
const minBudget = 64 << 20

// minCheckPeriod keeps the comparison of whole states what it is meant to be: rare.
const minCheckPeriod = 10 * time.Second

// minReadyzTimeout is the shortest --readyz-upstream-timeout. Upstream is sent a request each 15 s
// at least, so that less would say nothing.
const minReadyzTimeout = 30 * time.Second

// Validate refuses what cannot work, or would give access to users that must not have it, with one
// line: the setting, its value, the remedy. It brings Resources into the form that Settings
// promises.
func (o *Settings) Validate(environ []string) error {
	checks := []func() error{
		func() error { return o.validateKubeconfig(environ) },
		o.validateResources,
		o.validateNumbers,
		o.validateRequestLimits,
		o.validatePlain,
		o.validateTLS,
		o.validateSidecar,
		o.validateAccess,
		o.validateListeners,
		o.validateAudit,
		o.validateTracing,
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Refuse names a setting where the user made it, its value and the remedy.
func (o *Settings) Refuse(flag, value, remedy string) error {
	return o.originOf(flag).refuse(value, remedy)
}

func (o *Settings) validateKubeconfig(environ []string) error {
	if o.Kubeconfig == "" {
		inPod := func(variable string) bool { return strings.HasPrefix(variable, "KUBERNETES_SERVICE_HOST=") }
		if slices.ContainsFunc(environ, inPod) {
			return nil
		}
		return errors.New("--kubeconfig is not set, and this is not a pod (KUBERNETES_SERVICE_HOST is not set either): " +
			"name a kubeconfig file")
	}
	if _, err := rotation.ReadFile(o.Kubeconfig); err != nil {
		return o.Refuse("kubeconfig", o.Kubeconfig, "cannot be read: "+Cause(err))
	}
	return nil
}

func (o *Settings) validateResources() error {
	for i, arg := range o.Resources {
		o.Resources[i] = strings.TrimSpace(arg)
		if err := CheckResource(o.Resources[i]); err != nil {
			return o.Refuse("resources", o.Resources[i], err.Error())
		}
	}
	o.Resources = unique(o.Resources)
	return nil
}

func (o *Settings) validateNumbers() error {
	if o.MaxResources < 1 {
		return o.Refuse("max-resources", fmt.Sprint(o.MaxResources),
			"must be at least 1; to mirror nothing on demand, leave * out of --resources")
	}
	if o.ResourceIdleTimeout < 0 {
		return o.Refuse("resource-idle-timeout", o.ResourceIdleTimeout.String(),
			"must not be negative; 0s keeps every resource")
	}
	if o.ReadyzUpstreamTimeout < 0 || o.ReadyzUpstreamTimeout > 0 && o.ReadyzUpstreamTimeout < minReadyzTimeout {
		return o.Refuse("readyz-upstream-timeout", o.ReadyzUpstreamTimeout.String(),
			"must be "+minReadyzTimeout.String()+" or more, which a restart of an API server takes; 0s never fails readiness")
	}
	if o.MaxStaleness < 0 {
		return o.Refuse("max-staleness", o.MaxStaleness.String(),
			"must not be negative; 0s answers nothing while the API server is away")
	}
	if p := o.ConsistencyCheckPeriod; p != 0 && p < minCheckPeriod {
		return o.Refuse("consistency-check-period", p.String(), "must be at least "+minCheckPeriod.String()+
			", or 0s, which checks nothing")
	}
	if o.HistoryBytes < minHistoryBytes {
		return o.Refuse("history-bytes", o.HistoryBytes.String(), "must be at least 4Ki; is the unit missing, as in 64Mi?")
	}
	if o.EncodingCacheBytes != 0 && o.EncodingCacheBytes < minHistoryBytes {
		return o.Refuse("encoding-cache-bytes", o.EncodingCacheBytes.String(),
			"must be 0, which keeps nothing, or at least 4Ki; is the unit missing, as in 64Mi?")
	}
	if o.MemoryBudget != 0 && o.MemoryBudget < minBudget {
		return o.Refuse("memory-budget", o.MemoryBudget.String(),
			"must be 0, which is the limit of the container, or at least 64Mi; is the unit missing, as in 512Mi?")
	}
	if o.HistoryMinAge < 0 {
		return o.Refuse("history-min-age", o.HistoryMinAge.String(),
			"must not be negative; 0s keeps what fits into --history-bytes")
	}
	if o.MaxBackfillWatches < 0 {
		return o.Refuse("max-backfill-watches", fmt.Sprint(o.MaxBackfillWatches),
			"must not be negative; 0 has such clients list anew")
	}
	if o.MaxConnections < 0 {
		return o.Refuse("max-connections", fmt.Sprint(o.MaxConnections),
			"must not be negative; 0 is as many as open files allow")
	}
	if o.MaxConnectionsPerPeer < 0 {
		return o.Refuse("max-connections-per-peer", fmt.Sprint(o.MaxConnectionsPerPeer),
			"must not be negative; 0 sets no limit")
	}
	if most := connectionsWithin(openFiles()); o.MaxConnections > most {
		return o.Refuse("max-connections", fmt.Sprint(o.MaxConnections),
			fmt.Sprintf("is more than the open files that this process may have leave room for, "+
				"which is %d; raise ulimit -n", most))
	}
	if o.StallTimeout <= 0 {
		return o.Refuse("stall-timeout", o.StallTimeout.String(), "must be longer than 0s")
	}
	if o.DrainPeriod < 0 {
		return o.Refuse("drain-period", o.DrainPeriod.String(), "must not be negative; 0s ends all watches at once")
	}
	return nil
}

func (o *Settings) validatePlain() error {
	if o.Listen != "" {
		if err := listen.CheckPlainAddress(o.Listen); err != nil {
			return o.Refuse("listen", o.Listen, err.Error())
		}
	}
	if err := o.validateSocket(); err != nil {
		return err
	}
	if o.ListenAllowConnect && o.ListenIdentity != IdentitySelf {
		return o.Refuse("listen-allow-connect", "true", "has a meaning only with --listen-identity=self")
	}
	for _, host := range o.AcceptHosts {
		if len(validation.IsDNS1123Subdomain(strings.ToLower(host))) != 0 && !listen.IsIP(host) {
			return o.Refuse("accept-hosts", host, "must be a host name or IP address, without scheme, port or wildcard")
		}
	}
	for _, text := range o.AcceptOrigins {
		if !isOrigin(text) {
			return o.Refuse("accept-origins", text,
				"must be scheme://host or scheme://host:port, as a browser sends it in Origin")
		}
	}
	return nil
}

// validateSocket reads what is said of a unix socket.
func (o *Settings) validateSocket() error {
	if !strings.HasPrefix(o.Listen, listen.UnixPrefix) {
		const misplaced = "has a meaning only with a unix socket, as in --listen=unix:///run/spillway.sock"
		if o.ListenOwner != "" {
			return o.Refuse("listen-owner", o.ListenOwner, misplaced)
		}
		if o.ListenMode != defaultListenMode {
			return o.Refuse("listen-mode", o.ListenMode, misplaced)
		}
		return nil
	}
	var err error
	if o.SocketOwner, err = listen.ParseOwner(o.ListenOwner); err != nil {
		return o.Refuse("listen-owner", o.ListenOwner, err.Error())
	}
	if o.SocketMode, err = listen.ParseMode(o.ListenMode); err != nil {
		return o.Refuse("listen-mode", o.ListenMode, err.Error())
	}
	return nil
}

func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme != "" && u.Hostname() != "" && u.Scheme+"://"+u.Host == text &&
		!strings.Contains(text, "*")
}

// validateStrictTransport takes what kube-apiserver takes.
func (o *Settings) validateStrictTransport() error {
	const name = "strict-transport-security-directives"
	for _, directive := range o.StrictTransport {
		age, timed := strings.CutPrefix(directive, "max-age=")
		if timed {
			_, err := strconv.ParseUint(age, 10, 63)
			timed = err == nil
		}
		if directive != "includeSubDomains" && directive != "preload" && !timed {
			return o.Refuse(name, directive, "must be max-age=<seconds>, includeSubDomains or preload (RFC 6797, section 6.1)")
		}
	}
	if o.ListenTLS == "" && len(o.StrictTransport) > 0 {
		return o.Refuse(name, strings.Join(o.StrictTransport, ","), "has a meaning only with --listen-tls")
	}
	return nil
}

func (o *Settings) validateTLS() error {
	if err := o.validateStrictTransport(); err != nil {
		return err
	}
	if o.TLSCertFile != "" && o.TLSPrivateKeyFile == "" {
		return o.Refuse("tls-cert-file", o.TLSCertFile, "needs --tls-private-key-file as well")
	}
	if o.TLSPrivateKeyFile != "" && o.TLSCertFile == "" {
		return o.Refuse("tls-private-key-file", o.TLSPrivateKeyFile, "needs --tls-cert-file as well")
	}
	if o.ListenTLS == "" {
		if o.TLSCertFile != "" && !o.MetricsTLS {
			return o.Refuse("tls-cert-file", o.TLSCertFile, "has a meaning only with --listen-tls or --metrics-tls")
		}
		return o.validateKeyPair()
	}
	if _, err := listen.SplitAddress(o.ListenTLS); err != nil {
		return o.Refuse("listen-tls", o.ListenTLS, err.Error())
	}
	return o.validateKeyPair()
}

func (o *Settings) validateKeyPair() error {
	if o.TLSCertFile == "" {
		return nil
	}
	chain, err := rotation.ReadFile(o.TLSCertFile)
	if err != nil {
		return o.Refuse("tls-cert-file", o.TLSCertFile, "cannot be read: "+Cause(err))
	}
	key, err := rotation.ReadFile(o.TLSPrivateKeyFile)
	if err != nil {
		return o.Refuse("tls-private-key-file", o.TLSPrivateKeyFile, "cannot be read: "+Cause(err))
	}
	if _, err := tls.X509KeyPair(chain, key); err != nil {
		reason := strings.TrimPrefix(err.Error(), "tls: ")
		return o.Refuse("tls-cert-file", o.TLSCertFile, "is not a certificate with its key in "+o.TLSPrivateKeyFile+": "+
			reason)
	}
	return nil
}

func (o *Settings) validateListeners() error {
	if o.Listen == "" && o.ListenTLS == "" {
		return errors.New("no listener: --listen and --listen-tls are both empty; set one, such as --listen=127.0.0.1:8001")
	}
	if o.MetricsListen == "" {
		if o.MetricsTLS {
			return o.Refuse("metrics-tls", "true", "needs --metrics-listen")
		}
		if o.Debug {
			return o.Refuse("debug", "true", "needs --metrics-listen, where profiles are served")
		}
		return nil
	}
	address, err := listen.SplitAddress(o.MetricsListen)
	if err != nil {
		return o.Refuse("metrics-listen", o.MetricsListen, err.Error())
	}
	if o.Debug && !listen.IsLoopback(address.Host) && (!o.MetricsTLS || o.InsecureAllowAll) {
		return o.Refuse("debug", "true",
			"serves profiles on loopback, or over --metrics-tls to users that may get them, but --metrics-listen is "+
				o.MetricsListen)
	}
	return nil
}

// Warnings are what works but is dangerous or surely not meant, each a sentence for the log.
func (o *Settings) Warnings() []string {
	var all []string
	if o.InsecureAllowAll {
		all = append(all, "INSECURE: --insecure-allow-all is set. Every client that reaches a listener reads every "+
			"mirrored object, whatever RBAC says.")
	}
	if o.SocketMode&0o002 != 0 {
		all = append(all, "--listen-mode lets every user of this machine connect to the unix socket; --listen-owner=:group "+
			"with --listen-mode=0660 is for some of them.")
	}
	// a sidecar shows its pod what to trust
	if (o.ListenTLS != "" && o.SidecarDir == "" || o.MetricsTLS) && o.TLSCertFile == "" {
		all = append(all, "serving with a self-signed certificate that is made anew at each start: clients cannot verify "+
			"it; set --tls-cert-file and --tls-private-key-file")
	}
	if len(o.Resources) == 0 {
		all = append(all, "--resources is empty: nothing is mirrored and every request is passed through.")
	}
	if o.ReauthorizationInterval > defaultSweep {
		all = append(all, "--reauthorization-interval is above "+defaultSweep.String()+
			": a watch may go on for that long after its client has lost the right to it.")
	}
	if o.LocalRBAC {
		all = append(all, "--authorization-local-rbac allows what RBAC allows: what another authorizer of the API server "+
			"denies may be shown until "+
			"one of 100 checks finds out.")
	}
	if o.HistoryMinAge > 0 && o.HistoryMinAge < 75*time.Second {
		all = append(all, "--history-min-age is below 75s: a quiet client may be behind the kept history when it "+
			"reconnects, and has to list again.")
	}
	return all
}

// unique drops repetitions and keeps the order.
func unique(list []string) []string {
	var kept []string
	for _, s := range list {
		if !slices.Contains(kept, s) {
			kept = append(kept, s)
		}
	}
	return kept
}
