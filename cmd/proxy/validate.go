package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"spillway/internal/listen"
)

// minHistoryBytes catches a size that lost its unit: --history-bytes=64, --encoded-bytes=64.
const minHistoryBytes = 4 << 10

// minBudget is what the proxy needs for itself, and catches a size that lost its unit.
const minBudget = 64 << 20

// minCheckPeriod keeps the comparison of whole states what it is meant to be: rare.
const minCheckPeriod = 10 * time.Second

// leastAway is the shortest --unready-when-away. What is quiet is asked something each 15 s, so
// that less would tell nothing.
const leastAway = 30 * time.Second

// validate refuses what cannot work, or what would let in who does not belong, with one line: the setting, its value, the remedy.
// It brings resources into the form that options promises.
func (o *options) validate(environ []string) error {
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

// refuse names a setting where the user made it, its value and the remedy.
func (o *options) refuse(flag, value, remedy string) error {
	return o.originOf(flag).refuse(value, remedy)
}

func (o *options) validateKubeconfig(environ []string) error {
	if o.kubeconfig == "" {
		inPod := func(variable string) bool { return strings.HasPrefix(variable, "KUBERNETES_SERVICE_HOST=") }
		if slices.ContainsFunc(environ, inPod) {
			return nil
		}
		return errors.New("--kubeconfig is not set, and this is not a pod (KUBERNETES_SERVICE_HOST is not set either): name a kubeconfig file")
	}
	if _, err := os.ReadFile(o.kubeconfig); err != nil {
		return o.refuse("kubeconfig", o.kubeconfig, "cannot be read: "+cause(err))
	}
	return nil
}

func (o *options) validateResources() error {
	for i, arg := range o.resources {
		o.resources[i] = strings.TrimSpace(arg)
		if err := checkResource(o.resources[i]); err != nil {
			return o.refuse("resources", o.resources[i], err.Error())
		}
	}
	o.resources = unique(o.resources)
	return nil
}

func (o *options) validateNumbers() error {
	if o.maxResources < 1 {
		return o.refuse("max-resources", fmt.Sprint(o.maxResources), "must be at least 1; to mirror nothing on demand, leave * out of --resources")
	}
	if o.resourceIdleTimeout < 0 {
		return o.refuse("resource-idle-timeout", o.resourceIdleTimeout.String(), "must not be negative; 0s keeps every resource")
	}
	if o.unreadyWhenAway < 0 || o.unreadyWhenAway > 0 && o.unreadyWhenAway < leastAway {
		return o.refuse("unready-when-away", o.unreadyWhenAway.String(),
			"must be "+leastAway.String()+" or more, which a restart of an API server takes; 0s never fails readiness")
	}
	if o.maxStaleness < 0 {
		return o.refuse("max-staleness", o.maxStaleness.String(), "must not be negative; 0s answers nothing while the API server is away")
	}
	if p := o.consistencyCheckPeriod; p != 0 && p < minCheckPeriod {
		return o.refuse("consistency-check-period", p.String(), "must be at least "+minCheckPeriod.String()+", or 0s, which checks nothing")
	}
	if o.historyBytes < minHistoryBytes {
		return o.refuse("history-bytes", o.historyBytes.String(), "must be at least 4Ki; is the unit missing, as in 64Mi?")
	}
	if o.encodedBytes != 0 && o.encodedBytes < minHistoryBytes {
		return o.refuse("encoded-bytes", o.encodedBytes.String(), "must be 0, which keeps nothing, or at least 4Ki; is the unit missing, as in 64Mi?")
	}
	if o.memoryBudget != 0 && o.memoryBudget < minBudget {
		return o.refuse("memory-budget", o.memoryBudget.String(), "must be 0, which is the limit of the container, or at least 64Mi; is the unit missing, as in 512Mi?")
	}
	if o.historyMinAge < 0 {
		return o.refuse("history-min-age", o.historyMinAge.String(), "must not be negative; 0s keeps what fits into --history-bytes")
	}
	if o.backfillWatches < 0 {
		return o.refuse("backfill-watches", fmt.Sprint(o.backfillWatches), "must not be negative; 0 has such clients list anew")
	}
	if o.maxConnections < 0 {
		return o.refuse("max-connections", fmt.Sprint(o.maxConnections), "must not be negative; 0 is as many as open files allow")
	}
	if o.maxConnectionsPerPeer < 0 {
		return o.refuse("max-connections-per-peer", fmt.Sprint(o.maxConnectionsPerPeer), "must not be negative; 0 sets no limit")
	}
	if most := connectionsWithin(openFiles()); o.maxConnections > most {
		return o.refuse("max-connections", fmt.Sprint(o.maxConnections), fmt.Sprintf("is more than the open files that this process may have leave room for, "+
			"which is %d; raise ulimit -n", most))
	}
	if o.stallTimeout <= 0 {
		return o.refuse("stall-timeout", o.stallTimeout.String(), "must be longer than 0s")
	}
	if o.writers == writersOn && runtime.GOOS != "linux" {
		return o.refuse("writers", o.writers, "is for Linux; auto has writers where there can be any")
	}
	if o.drainPeriod < 0 {
		return o.refuse("drain-period", o.drainPeriod.String(), "must not be negative; 0s ends all watches at once")
	}
	return nil
}

func (o *options) validatePlain() error {
	if o.listen != "" {
		if err := listen.CheckPlainAddress(o.listen); err != nil {
			return o.refuse("listen", o.listen, err.Error())
		}
	}
	if err := o.validateSocket(); err != nil {
		return err
	}
	if o.plainSelfConnect && o.plainIdentity != identitySelf {
		return o.refuse("plain-self-connect", "true", "has a meaning only with --plain-identity=self")
	}
	for _, host := range o.acceptHosts {
		if len(validation.IsDNS1123Subdomain(strings.ToLower(host))) != 0 && !listen.IsIP(host) {
			return o.refuse("accept-hosts", host, "must be a host name or IP address, without scheme, port or wildcard")
		}
	}
	for _, text := range o.acceptOrigins {
		if !isOrigin(text) {
			return o.refuse("accept-origins", text, "must be scheme://host or scheme://host:port, as a browser sends it in Origin")
		}
	}
	return nil
}

// validateSocket reads what is said of a unix socket.
func (o *options) validateSocket() error {
	if !strings.HasPrefix(o.listen, listen.UnixPrefix) {
		const misplaced = "has a meaning only with a unix socket, as in --listen=unix:///run/spillway.sock"
		if o.listenOwner != "" {
			return o.refuse("listen-owner", o.listenOwner, misplaced)
		}
		if o.listenMode != defaultListenMode {
			return o.refuse("listen-mode", o.listenMode, misplaced)
		}
		return nil
	}
	var err error
	if o.socketOwner, err = listen.ParseOwner(o.listenOwner); err != nil {
		return o.refuse("listen-owner", o.listenOwner, err.Error())
	}
	if o.socketMode, err = listen.ParseMode(o.listenMode); err != nil {
		return o.refuse("listen-mode", o.listenMode, err.Error())
	}
	return nil
}

func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme != "" && u.Hostname() != "" && u.Scheme+"://"+u.Host == text && !strings.Contains(text, "*")
}

// validateStrictTransport takes what kube-apiserver takes.
func (o *options) validateStrictTransport() error {
	const name = "strict-transport-security-directives"
	for _, directive := range o.strictTransport {
		age, timed := strings.CutPrefix(directive, "max-age=")
		if timed {
			_, err := strconv.ParseUint(age, 10, 63)
			timed = err == nil
		}
		if directive != "includeSubDomains" && directive != "preload" && !timed {
			return o.refuse(name, directive, "must be max-age=<seconds>, includeSubDomains or preload (RFC 6797, section 6.1)")
		}
	}
	if o.listenTLS == "" && len(o.strictTransport) > 0 {
		return o.refuse(name, strings.Join(o.strictTransport, ","), "has a meaning only with --listen-tls")
	}
	return nil
}

func (o *options) validateTLS() error {
	if err := o.validateStrictTransport(); err != nil {
		return err
	}
	if o.tlsCertFile != "" && o.tlsPrivateKeyFile == "" {
		return o.refuse("tls-cert-file", o.tlsCertFile, "needs --tls-private-key-file as well")
	}
	if o.tlsPrivateKeyFile != "" && o.tlsCertFile == "" {
		return o.refuse("tls-private-key-file", o.tlsPrivateKeyFile, "needs --tls-cert-file as well")
	}
	if o.listenTLS == "" {
		if o.tlsCertFile != "" && !o.metricsTLS {
			return o.refuse("tls-cert-file", o.tlsCertFile, "has a meaning only with --listen-tls or --metrics-tls")
		}
		return o.validateKeyPair()
	}
	if _, err := listen.SplitAddress(o.listenTLS); err != nil {
		return o.refuse("listen-tls", o.listenTLS, err.Error())
	}
	return o.validateKeyPair()
}

func (o *options) validateKeyPair() error {
	if o.tlsCertFile == "" {
		return nil
	}
	chain, err := os.ReadFile(o.tlsCertFile)
	if err != nil {
		return o.refuse("tls-cert-file", o.tlsCertFile, "cannot be read: "+cause(err))
	}
	key, err := os.ReadFile(o.tlsPrivateKeyFile)
	if err != nil {
		return o.refuse("tls-private-key-file", o.tlsPrivateKeyFile, "cannot be read: "+cause(err))
	}
	if _, err := tls.X509KeyPair(chain, key); err != nil {
		reason := strings.TrimPrefix(err.Error(), "tls: ")
		return o.refuse("tls-cert-file", o.tlsCertFile, "is not a certificate with its key in "+o.tlsPrivateKeyFile+": "+reason)
	}
	return nil
}

func (o *options) validateListeners() error {
	if o.listen == "" && o.listenTLS == "" {
		return errors.New("no listener: --listen and --listen-tls are both empty; set one, such as --listen=127.0.0.1:8001")
	}
	if o.metricsListen == "" {
		if o.metricsTLS {
			return o.refuse("metrics-tls", "true", "needs --metrics-listen")
		}
		if o.debug {
			return o.refuse("debug", "true", "needs --metrics-listen, where profiles are served")
		}
		return nil
	}
	address, err := listen.SplitAddress(o.metricsListen)
	if err != nil {
		return o.refuse("metrics-listen", o.metricsListen, err.Error())
	}
	if o.debug && !listen.IsLoopback(address.Host) && (!o.metricsTLS || o.insecureAllowAll) {
		return o.refuse("debug", "true", "serves profiles on loopback, or over --metrics-tls to those who may get them, but --metrics-listen is "+o.metricsListen)
	}
	return nil
}

// warnings are what works but is dangerous or surely not meant, each a sentence for the log.
func (o *options) warnings() []string {
	var all []string
	if o.insecureAllowAll {
		all = append(all, "INSECURE: --insecure-allow-all is set. Every client that reaches a listener reads every mirrored object, whatever RBAC says.")
	}
	if o.socketMode&0o002 != 0 {
		all = append(all, "--listen-mode lets every user of this machine connect to the unix socket; --listen-owner=:group with --listen-mode=0660 is for some of them.")
	}
	// a sidecar shows its pod what to trust
	if (o.listenTLS != "" && o.sidecarDir == "" || o.metricsTLS) && o.tlsCertFile == "" {
		all = append(all, "serving with a self-signed certificate that is made anew at each start: clients cannot verify it; set --tls-cert-file and --tls-private-key-file")
	}
	if len(o.resources) == 0 {
		all = append(all, "--resources is empty: nothing is mirrored and every request is passed through.")
	}
	if o.reauthSweep > defaultSweep {
		all = append(all, "--reauth-sweep is above "+defaultSweep.String()+": a watch may go on for that long after its client has lost the right to it.")
	}
	if o.localRBAC {
		all = append(all, "--authorization-local-rbac allows what RBAC allows: what another authorizer of the API server denies may be shown until "+
			"one of 100 checks finds out.")
	}
	if o.historyMinAge > 0 && o.historyMinAge < 75*time.Second {
		all = append(all, "--history-min-age is below 75s: a quiet client may be behind the kept history when it reconnects, and has to list again.")
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
