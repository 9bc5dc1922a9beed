package upstream

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"spillway/internal/upstream/capabilities"
	"spillway/internal/upstream/transport"
)

// Client is upstream under the proxy's own credentials (design D12). Of what clients of the proxy
// send, it passes on only names that were parsed. One Client serves all reflectors, probes and
// look-ups.
type Client struct {
	transports    *transport.Factory
	cfg           *rest.Config
	base          *url.URL
	http          *http.Client
	discovery     *discovery.DiscoveryClient
	links         *transport.Pool
	capabilities  *capabilities.Record
	contact       contact
	servingProbes servingProbes
	recoveryProbe recoveryProbe
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
		capabilities: capabilities.NewRecord(!cfg.DisableCompression)}
	c.servingProbes.probe, c.recoveryProbe.probe = c.probeServing, c.probeServing
	return c, nil
}

// refuseRedirect is for http.Client, which would follow a redirect: client-go's transports would
// show the proxy's credentials to the server that it names. A kube-apiserver redirects only
// browsers.
func refuseRedirect(r *http.Request, _ []*http.Request) error { return redirectError(r.URL.Host) }

func redirectError(to string) error {
	return fmt.Errorf("the API server redirects to %q, which is not followed with the proxy's credentials; is the server "+
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

// Capabilities are what is known by now of what upstream can do.
func (c *Client) Capabilities() capabilities.Summary { return c.capabilities.Summary() }

// CapabilityRecord takes what probes observe.
func (c *Client) CapabilityRecord() *capabilities.Record { return c.capabilities }

// Close closes idle connections, and ends the probes of Serves. Idempotent; other requests under
// way go on.
func (c *Client) Close() {
	c.servingProbes.stop()
	utilnet.CloseIdleConnectionsFor(c.http.Transport)
	c.links.Close()
}

// Version reads upstream's version.
func (c *Client) Version(ctx context.Context) (*version.Info, error) {
	var info version.Info
	if err := c.GetJSON(ctx, GetRequest{Verb: "get", Path: "/version"}, &info); err != nil {
		return nil, err
	}
	c.capabilities.ObserveVersion(info.GitVersion)
	return &info, nil
}
