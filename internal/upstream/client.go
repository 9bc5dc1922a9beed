package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"spillway/internal/upstream/abilities"
	"spillway/internal/upstream/transport"
)

// Client is upstream under the proxy's own credentials (design D12). It sends nothing that a client
// of the proxy sent but names that were parsed. One Client serves all reflectors, probes and
// look-ups.
type Client struct {
	transports    *transport.Factory
	cfg           *rest.Config
	base          *url.URL
	http          *http.Client
	discovery     *discovery.DiscoveryClient
	links         *transport.Pool
	recoveryProbe recoveryProbe
	serving       servingRecord
	contact       contact
	abilities     *abilities.Record
}

// NewClient makes the client of one upstream; it sends nothing yet. The factory's files are
// followed while its Run runs.
func NewClient(transports *transport.Factory) (*Client, error) {
	cfg := transports.Config()
	base, err := transport.BaseURL(cfg)
	if err != nil {
		return nil, err
	}
	own, err := transports.Own(transport.Mirrors)
	if err != nil {
		return nil, fmt.Errorf("credentials for %s: %w; correct them in the kubeconfig", base.Host, err)
	}
	client := &http.Client{Transport: own, CheckRedirect: refuseRedirect}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", base.Host, err)
	}
	c := &Client{transports: transports, cfg: cfg, base: base, http: client, discovery: disco, links: transports.Links(),
		abilities: abilities.NewRecord(!cfg.DisableCompression)}
	c.recoveryProbe.probeServing = c.probeServing
	return c, nil
}

// refuseRedirect is for http.Client, which would follow: client-go's transports then show the
// proxy's credentials to the server that is named. A kube-apiserver redirects only browsers.
func refuseRedirect(r *http.Request, _ []*http.Request) error { return redirectError(r.URL.Host) }

func redirectError(to string) error {
	return fmt.Errorf("the apiserver redirects to %q, which is not followed with the proxy's credentials; is the server "+
		"in the kubeconfig right?", to)
}

// Config is the configuration of the client, for typed clients that share HTTP(). The caller must
// not change it.
func (c *Client) Config() *rest.Config { return c.cfg }

// Base is upstream's address, which must not be changed.
func (c *Client) Base() *url.URL { return c.base }

// HTTP is the client's connections and credentials.
func (c *Client) HTTP() *http.Client { return c.http }

// Discovery reads what upstream serves, on the client's connections.
func (c *Client) Discovery() *discovery.DiscoveryClient { return c.discovery }

// Links are connections of which each carries one request at a time.
func (c *Client) Links() *transport.Pool { return c.links }

// Abilities are what is known by now of what upstream can do.
func (c *Client) Abilities() abilities.Summary { return c.abilities.Summary() }

// AbilityRecord takes what probes observe.
func (c *Client) AbilityRecord() *abilities.Record { return c.abilities }

// Close closes idle connections. Idempotent; requests under way go on.
func (c *Client) Close() {
	utilnet.CloseIdleConnectionsFor(c.http.Transport)
	c.links.Close()
}

// Version asks upstream what it is.
func (c *Client) Version(ctx context.Context) (*version.Info, error) {
	var info version.Info
	if err := c.GetJSON(ctx, GetRequest{Verb: "get", Path: "/version"}, &info); err != nil {
		return nil, err
	}
	c.abilities.ObserveVersion(info.GitVersion)
	return &info, nil
}

// Check reports in one line why upstream cannot be used; nil if it answers. What it was is beneath,
// for IsAway.
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
		return explain(err, "apiserver %s: the proxy may not read /version (403): bind its user to system:public-info-viewer",
			host)
	case errors.As(err, new(apierrors.APIStatus)):
		return explain(err, "apiserver %s does not answer /version: %s", host, transport.OneLine(err))
	case errors.As(err, &dns):
		return explain(err, "apiserver %s is unknown: %s; is the server in the kubeconfig right?", host, dns.Err)
	case errors.As(err, &op):
		return explain(err, "apiserver %s cannot be reached: %s; is it running, and the server in the kubeconfig right?",
			host, op.Err)
	}
	return explain(err, "apiserver %s: %s", host, transport.OneLine(withoutURL(err)))
}

// describedError is an error in other words, which name what to do.
type describedError struct {
	error
	text string
}

func explain(err error, format string, args ...any) error {
	return describedError{err, fmt.Sprintf(format, args...)}
}

// Error is the words.
func (e describedError) Error() string { return e.text }

// Unwrap is the error that they are for.
func (e describedError) Unwrap() error { return e.error }

// withoutURL leaves out the request that net/http puts before every error.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// contact knows since when upstream has not answered any request under the proxy's own credentials.
type contact struct{ silentSince atomic.Pointer[time.Time] }

// recordResult hears how a request came out. A 5xx may be of what stands before an apiserver that
// is away, so that it says nothing.
func (c *contact) recordResult(resp *http.Response, err error) {
	switch {
	case err == nil && resp.StatusCode < http.StatusInternalServerError:
		c.silentSince.Store(nil)
	case err != nil && !errors.Is(err, context.Canceled), err == nil && !jsonAnswer(resp):
		c.silentSince.CompareAndSwap(nil, new(time.Now()))
	}
}

func jsonAnswer(resp *http.Response) bool {
	return resp.Header.Get("Content-Type") == "application/json"
}

// SilentSince is since when upstream has not answered, or had no request for want of
// credentials; zero: its last answer came.
func (c *Client) SilentSince() time.Time {
	since, _ := c.transports.CredentialTrouble()
	if silent := c.contact.silentSince.Load(); silent != nil && (since.IsZero() || silent.Before(since)) {
		return *silent
	}
	return since
}

// CredentialTrouble is why the proxy's own credentials cannot be had at present; nil: they can, or
// nothing is known of it.
func (c *Client) CredentialTrouble() error {
	_, err := c.transports.CredentialTrouble()
	return err
}
