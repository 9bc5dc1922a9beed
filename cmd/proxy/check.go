package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/check"
	"spillway/internal/config"
	"spillway/internal/top"
)

// checkPatience is for how long spillway check tries a server that refuses connections.
const checkPatience = 10 * time.Second

// checkOptions are the flags of the command check.
type checkOptions struct {
	server, health, caFile, tokenFile string
	resources                         []string
}

// newCheck returns `spillway check`.
func newCheck() *cobra.Command {
	o := &checkOptions{}
	cmd := &cobra.Command{
		Use:   "check [flags]",
		Short: "Ask a running spillway whether it serves",
		Long: `spillway check asks a running spillway as a client would, prints a line for each answer, and ends
with code 1 if one of them is not as it should be: /livez and /readyz, which pass through to the API
server; with a token, the user that it is of; with resources, a list of each, which must come from
memory; with either, /version; with --health, what the spillway says is wrong. Lists select the name
spillway-check, so most likely they are empty. A spillway webhook answers the first two by itself.

It is what the chart's test runs: helm test.`,
		Example: `  spillway check --server https://spillway.spillway-system.svc --ca-file ca.crt --token-file token --resource pods,nodes
  spillway check --server https://spillway-webhook.spillway-system.svc --ca-file ca.crt`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.client()
			if err != nil {
				return err
			}
			return client.Run(cmd.Context(), o.resources, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.server, "server", "", "The `URL` at which clients reach it. Needed.")
	f.StringVar(&o.caFile, "ca-file", "", "Trust the certificates in this PEM `file`, instead of the system's.")
	f.StringVar(&o.tokenFile, "token-file", "",
		"Send requests with the bearer token in this `file`; over https only, except on loopback.")
	f.StringVar(&o.health, "health", "", "The `URL` of its metrics listener: read /readyz?verbose there, which says "+
		"what is wrong. Over https it must show the certificate that is for the host of --server.")
	f.StringSliceVar(&o.resources, "resource", nil, "List this `resource`, as resource[.version][.group], "+
		"which must be mirrored, and allowed to the user of the check. Several: comma-separated, or repeated.")
	return prepare(cmd)
}

// client checks the flags, and makes the Checker. An error is one line that names the flag.
func (o *checkOptions) client() (*check.Checker, error) {
	base, err := top.ParseBase(o.server)
	if err != nil {
		return nil, fmt.Errorf("--server=%s: %w", o.server, err)
	}
	c := &check.Checker{Server: check.Endpoint{Base: base}, Patience: checkPatience}
	if o.tokenFile != "" {
		token, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file=%s: cannot be read: %s", o.tokenFile, config.Cause(err))
		}
		if c.Server.Token = strings.TrimSpace(string(token)); c.Server.Token == "" {
			return nil, fmt.Errorf("--token-file=%s: is empty: name a file with a bearer token", o.tokenFile)
		}
		if base.Scheme == "http" && !onLoopback(base) {
			return nil, fmt.Errorf("--server=%s: a token is not sent over plain HTTP to another machine: use https", o.server)
		}
	}
	for _, resource := range o.resources {
		if resource == config.AllResources {
			return nil, errors.New("--resource=*: name one, such as pods")
		}
		if err := config.CheckResource(resource); err != nil {
			return nil, fmt.Errorf("--resource=%s: %w", resource, err)
		}
	}
	transport, err := transportTo(base, "server", o.caFile)
	if err != nil {
		return nil, err
	}
	c.Server.Transport = transport
	if o.health == "" {
		return c, nil
	}
	health, err := top.ParseBase(o.health)
	if err != nil {
		return nil, fmt.Errorf("--health=%s: %w", o.health, err)
	}
	healthTransport := transport.Clone()
	healthTransport.TLSClientConfig.ServerName = base.Hostname()
	c.Health = &check.Endpoint{Base: health, Transport: healthTransport}
	return c, nil
}
