package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apimachinery/pkg/util/validation"

	"spillway/internal/listen"
	"spillway/internal/rotation"
)

// Validate refuses what cannot work, or would give access to users that must not have it, with one
// line: the setting, its value, the remedy. It brings Resources into the form that Settings
// promises.
func (o *Settings) Validate(environ []string) error {
	if err := o.ValidateAsFile(environ); err != nil {
		return err
	}
	if len(o.Resources) == 0 && !o.isSet("resources") {
		return errors.New("--resources is not set: name the resources to serve from memory, such as " +
			"--resources=pods,services, or set --resources='' to pass everything through")
	}
	return nil
}

// ValidateAsFile is Validate for settings that are only written to a file, which may leave the
// resources to another place.
func (o *Settings) ValidateAsFile(environ []string) error {
	for _, validate := range []func(*setting) error{o.validateRow, o.validateItems} {
		for _, s := range o.rows {
			if err := validate(s); err != nil {
				return err
			}
		}
	}
	o.Resources = unique(o.Resources)
	if err := o.validateTogether(environ); err != nil {
		return err
	}
	return o.validateSocket()
}

// Refuse names a setting where the user made it, its value and the remedy.
func (o *Settings) Refuse(flag, value, remedy string) error {
	return o.refuse(o.originOf(flag), value, remedy)
}

// Cause is the error of the operating system, without the operation and the path around it: Refuse
// has named the file already.
func Cause(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// validateTogether refuses combinations that the rows of the table cannot express.
func (o *Settings) validateTogether(environ []string) error {
	inPod := func(variable string) bool { return strings.HasPrefix(variable, "KUBERNETES_SERVICE_HOST=") }
	const loopback = "127.0.0.1:6443"
	switch limit := connectionsWithin(openFiles()); {
	case o.Context != "" && o.Kubeconfig == "" && slices.ContainsFunc(environ, inPod):
		return o.Refuse("context", o.Context, "requires --kubeconfig in a pod, whose service account has no contexts")
	case o.Listen == "" && o.ListenTLS == "":
		return errors.New("no listener: --listen and --listen-tls are both empty; set one, such as --listen=127.0.0.1:8001")
	case o.MaxConnections > limit:
		return o.Refuse("max-connections", strconv.Itoa(o.MaxConnections), fmt.Sprintf(
			"must be at most %d, because of the limit of open files; raise ulimit -n", limit))
	case o.SidecarDir != "" && !isOnLoopback(o.ListenTLS):
		return o.Refuse("sidecar-dir", o.SidecarDir, "requires --listen-tls on loopback, such as --listen-tls="+loopback)
	case o.SidecarKeyDir != "" && strings.TrimRight(o.SidecarKeyDir, "/") == strings.TrimRight(o.SidecarDir, "/"):
		return o.Refuse("sidecar-key-dir", o.SidecarKeyDir, "must not be --sidecar-dir, which other containers read")
	case o.FrontProxyCAFile != "" && len(o.FrontProxyNameHeaders) == 0:
		return o.Refuse("requestheader-username-headers", "", "must name a header, such as X-Remote-User")
	case o.InsecureAllowAll && o.ListenTLS != "" && !isOnLoopback(o.ListenTLS):
		return o.Refuse("insecure-allow-all", "true", "cannot be used with --listen-tls="+o.ListenTLS+
			", which other machines reach: use a loopback address, such as "+loopback)
	case o.Profiling && !isOnLoopback(o.MetricsListen) && (!o.UsesMetricsTLS() || o.InsecureAllowAll):
		return o.Refuse("profiling", "true", "requires --metrics-listen on loopback, or an authentication of its users, "+
			"because profiles show secrets; --metrics-listen is "+o.MetricsListen)
	}
	return nil
}

// validateSocket reads the owner and the mode of a unix socket.
func (o *Settings) validateSocket() (err error) {
	for _, flag := range []string{"listen-owner", "listen-mode"} {
		if o.isChosen(flag) && !strings.HasPrefix(o.Listen, listen.UnixPrefix) {
			return o.Refuse(flag, o.flags.Lookup(flag).Value.String(),
				"requires a unix socket, as in --listen=unix:///run/spillway.sock")
		}
	}
	if o.SocketOwner, err = listen.ParseOwner(o.ListenOwner); err != nil {
		return o.Refuse("listen-owner", o.ListenOwner, err.Error())
	}
	if o.SocketMode, err = listen.ParseMode(o.ListenMode); err != nil {
		return o.Refuse("listen-mode", o.ListenMode, err.Error())
	}
	return nil
}

func isOnLoopback(address string) bool {
	split, err := listen.SplitAddress(address)
	return err == nil && listen.IsLoopback(split.Host)
}

func isReadable(file string) error {
	if _, err := rotation.ReadFile(file); err != nil {
		return errors.New("cannot be read: " + Cause(err))
	}
	return nil
}

func isNotEmpty(item string) error {
	return errorUnless(item != "", "must not contain an empty item")
}

func checkAddress(text string) error {
	_, err := listen.SplitAddress(text)
	return err
}

func checkHost(text string) error {
	return errorUnless(len(validation.IsDNS1123Subdomain(strings.ToLower(text))) == 0 || listen.IsIP(text),
		"must be a host name or IP address, without scheme, port or wildcard")
}

func checkHeader(text string) error {
	return errorUnless(httpguts.ValidHeaderFieldName(text), "must be the name of a header, such as X-Remote-User")
}

func checkOrigin(text string) error {
	u, err := url.Parse(text)
	return errorUnless(err == nil && u.Scheme != "" && u.Hostname() != "" && u.Scheme+"://"+u.Host == text &&
		!strings.Contains(text, "*"), "must be scheme://host or scheme://host:port, as a browser sends it in Origin")
}

// checkDirective accepts what kube-apiserver accepts.
func checkDirective(text string) error {
	age, isAge := strings.CutPrefix(text, "max-age=")
	_, err := strconv.ParseUint(age, 10, 63)
	return errorUnless(text == "includeSubDomains" || text == "preload" || isAge && err == nil,
		"must be max-age=<seconds>, includeSubDomains or preload (RFC 6797, section 6.1)")
}

func errorUnless(good bool, problem string) error {
	if good {
		return nil
	}
	return errors.New(problem)
}

// sweepLimit is the longest interval that keeps the promise for open watches: 30 s after a client
// has lost a right, it receives nothing by it.
const sweepLimit = 25 * time.Second

// Warnings are sentences for the log about settings that work, but are dangerous or surely not
// meant.
func (o *Settings) Warnings() (all []string) {
	for _, w := range []struct {
		holds bool
		text  string
	}{
		{o.InsecureAllowAll, "INSECURE: --insecure-allow-all is set. Every client that reaches a listener reads every " +
			"mirrored object, whatever RBAC says."},
		{o.SocketMode&0o002 != 0, "--listen-mode lets every user of this machine connect to the unix socket; " +
			"--listen-owner=:group with --listen-mode=0660 is for some of them."},
		// in a pod with a sidecar, the other containers trust its certificate
		{(o.ListenTLS != "" && o.SidecarDir == "" || o.UsesMetricsTLS()) && o.TLSCertFile == "",
			"serving with a self-signed certificate that is made again at each start: clients cannot verify it; set " +
				"--tls-cert-file and --tls-private-key-file"},
		{o.UsesMetricsTLS() && o.InsecureAllowAll,
			"--metrics-listen is not on loopback, and --insecure-allow-all authenticates no client: every scrape of /metrics " +
				"and every request for /statusz is refused; use --metrics-listen=127.0.0.1:9464, or remove " +
				"--insecure-allow-all."},
		{len(o.Resources) == 0, "--resources is empty: nothing is mirrored and every request is passed through."},
		{o.ReauthorizationInterval > sweepLimit, "--reauthorization-interval is above " + sweepLimit.String() +
			": a watch may go on for that long after its client has lost the right to it."},
		{o.LocalRBAC, "--authorization-local-rbac allows what RBAC allows: what another authorizer of the API server " +
			"denies may be shown until one of 100 checks finds out."},
		{o.HistoryMinAge > 0 && o.HistoryMinAge < 75*time.Second, "--history-min-age is below 75s: a quiet client may be " +
			"behind the kept history when it reconnects, and has to list again."},
	} {
		if w.holds {
			all = append(all, w.text)
		}
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
