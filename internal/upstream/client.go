package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Client is the transport Own (design D12): upstream under the proxy's own credentials. It carries nothing that a client of the proxy sent
// but names that were parsed. One Client serves all reflectors, probes and look-ups.
type Client struct {
	cfg       *rest.Config
	base      *url.URL
	http      *http.Client
	discovery *discovery.DiscoveryClient
	probes    pool
	lookout   lookout
}

// NewClient makes the client of one upstream; it sends nothing yet. cfg stays the caller's. Without cfg.UserAgent it is "spillway/<version>".
func NewClient(cfg *rest.Config) (*Client, error) {
	base, err := BaseURL(cfg)
	if err != nil {
		return nil, err
	}
	cfg = ownConfig(cfg)
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("credentials for %s: %w; correct them in the kubeconfig", base.Host, err)
	}
	client.CheckRedirect = refuseRedirect
	if t := transportBeneath(client.Transport); t != nil {
		watchHealth(t, pingAfter, pingTimeout)
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", base.Host, err)
	}
	c := &Client{cfg: cfg, base: base, http: client, discovery: disco}
	c.probes.cfg = cfg
	c.lookout.ask = c.serves
	return c, nil
}

// ownConfig is cfg as everything under the proxy's own credentials uses it.
func ownConfig(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = "spillway/" + buildVersion()
	}
	cfg.QPS = -1    // reflectors are few; upstream has priority and fairness
	cfg.Timeout = 0 // it would end watches
	if cfg.Dial == nil {
		// With a dialer of its own client-go makes a transport of its own, where it would otherwise take http.DefaultTransport and
		// forget DisableCompression.
		cfg.Dial = newDialer().DialContext
	}
	return cfg
}

// refuseRedirect is for http.Client, which would follow: client-go's transports then show the proxy's credentials to whoever is there. A
// kube-apiserver redirects nobody but browsers.
func refuseRedirect(r *http.Request, _ []*http.Request) error { return redirected(r.URL.Host) }

func redirected(to string) error {
	return fmt.Errorf("the apiserver redirects to %q, which is not followed with the proxy's credentials; is the server in the kubeconfig right?", to)
}

// buildVersion is the version that the binary was built as.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// Config is the configuration of the client, for typed clients that share HTTP(). The caller must not change it.
func (c *Client) Config() *rest.Config { return c.cfg }

// Base is upstream's address, which nobody may change.
func (c *Client) Base() *url.URL { return c.base }

// HTTP is the client's connections and credentials.
func (c *Client) HTTP() *http.Client { return c.http }

// Close closes idle connections. Idempotent; requests under way go on.
func (c *Client) Close() {
	utilnet.CloseIdleConnectionsFor(c.http.Transport)
	c.probes.close()
}

// Version asks upstream what it is.
func (c *Client) Version(ctx context.Context) (*version.Info, error) {
	var info version.Info
	if err := c.getJSON(ctx, request{verb: "get", path: "/version"}, &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// Check reports in one line why upstream cannot be used; nil if it answers. What it was is beneath, for Away.
func (c *Client) Check(ctx context.Context) error {
	_, err := c.Version(ctx)
	var op *net.OpError
	var dns *net.DNSError
	host := c.base.Host
	switch {
	case err == nil:
		return nil
	case apierrors.IsUnauthorized(err):
		return explain(err, "apiserver %s does not accept the proxy's credentials (401): renew them in the kubeconfig", host)
	case apierrors.IsForbidden(err):
		return explain(err, "apiserver %s: the proxy may not read /version (403): bind its user to system:public-info-viewer", host)
	case errors.As(err, new(apierrors.APIStatus)):
		return explain(err, "apiserver %s does not answer /version: %s", host, oneLine(err))
	case errors.As(err, &dns):
		return explain(err, "apiserver %s is unknown: %s; is the server in the kubeconfig right?", host, dns.Err)
	case errors.As(err, &op):
		return explain(err, "apiserver %s cannot be reached: %s; is it running, and the server in the kubeconfig right?", host, op.Err)
	}
	return explain(err, "apiserver %s: %s", host, oneLine(withoutURL(err)))
}

// explained is an error in other words, which name what to do.
type explained struct {
	error
	text string
}

func explain(err error, format string, args ...any) error {
	return explained{err, fmt.Sprintf(format, args...)}
}

// Error is the words.
func (e explained) Error() string { return e.text }

// Unwrap is the error that they are for.
func (e explained) Unwrap() error { return e.error }

// withoutURL leaves out the request that net/http puts before every error.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
