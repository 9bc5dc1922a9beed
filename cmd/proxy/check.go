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

// checkPatience is how long spillway check goes on connecting to a server that refuses connections.
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
		Short: "Check that a running spillway serves",
		Long: `spillway check sends requests to a running spillway, as any client may, and checks the answers.

  spillway check --server https://spillway.spillway-system.svc --ca-file ca.crt \
    --token-file token --resource pods

It prints a line for each check:

  ok      /livez: 200
  ok      /readyz: 200
  ok      /version: v1.36.0
  ok      user: system:serviceaccount:apps:agent
  ok      LIST pods: from memory, at resourceVersion 4711

/livez and /readyz are always checked, and pass through to the API server. A token adds the check of
its user. Each --resource adds a LIST that must come from memory. The LIST selects the name
spillway-check, so its answer is most likely empty. A token or a resource adds /version. --health
adds /readyz?verbose of the metrics listener.

While the server refuses connections, spillway check tries again for up to 10 s, and says so in a
line that begins with "waits". So does a check that has no answer after 2 s. A line that begins with
"unknown" is about a LIST that may be the API server's own answer, and is no failure.

It fails with code 1 if a check fails. The line of that check then begins with FAILED and ends with a
remedy. The last line says how many failed. "helm test" runs this command.`,
		Example: `  # The webhook, which answers /livez and /readyz itself:
  spillway check --server https://spillway-webhook.spillway-system.svc --ca-file ca.crt`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checker, err := o.newChecker()
			if err != nil {
				return err
			}
			err = checker.Run(cmd.Context(), o.resources, cmd.OutOrStdout())
			if errors.As(err, new(*check.FailedError)) { // on the same stream as its lines, and so behind them
				fmt.Fprintln(cmd.OutOrStdout(), "spillway:", err)
				return errPrinted
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.server, "server", "", "The `URL` at which clients reach spillway. Required.")
	f.StringVar(&o.caFile, "ca-file", "", "Trust the certificates in this PEM `file`, instead of the system's.")
	f.StringVar(&o.tokenFile, "token-file", "",
		"Send requests with the bearer token in this `file`. The token goes over https, except on loopback.")
	f.StringVar(&o.health, "health", "", "Read /readyz?verbose, which names faults, from the metrics "+
		"listener at this `URL`. Over https, its certificate must be valid for the host of --server.")
	f.StringSliceVar(&o.resources, "resource", nil, "List this `resource`, in the form resource[.version][.group]. "+
		"The resource must be mirrored, and the user of the token must be allowed to list it. Separate several resources "+
		"by commas, or repeat the flag.")
	return newSubcommand(cmd)
}

// newChecker checks the flags, and makes the Checker. An error is one line that names the flag.
func (o *checkOptions) newChecker() (*check.Checker, error) {
	if o.server == "" {
		return nil, errors.New("--server is required: the URL at which clients reach spillway, such as " +
			"https://spillway.spillway-system.svc")
	}
	base, err := top.ParseBase(o.server)
	if err != nil {
		return nil, fmt.Errorf("--server=%s: %w", o.server, err)
	}
	c := &check.Checker{Server: check.Endpoint{Flag: "--server", Base: base}, Patience: checkPatience}
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
			return nil, errors.New("--resource=*: must name a resource, such as pods")
		}
		if err := config.CheckResource(resource); err != nil {
			return nil, fmt.Errorf("--resource=%s: %w", resource, err)
		}
	}
	transport, err := newTransport(base, "server", o.caFile)
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
	c.Health = &check.Endpoint{Flag: "--health", Base: health, Transport: healthTransport}
	return c, nil
}
