package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/config"
	"spillway/internal/status"
	"spillway/internal/top"
)

const topHelp = `spillway top shows the status page (/statusz) of a running spillway in a terminal: the mirrored
resources, their watches, and how far each watch is behind.

  spillway top

On a terminal it prints a report, and replaces it every --interval until Ctrl-C. Elsewhere, and with
--once, it prints one report.

It fails with code 1 if a flag is wrong, or if spillway does not answer the first request. If a later
request is not answered, the screen says why, and top tries again.`

const topExamples = `  spillway top --once --sort rate
  spillway top --address https://spillway.example.com:9464 --token-file token --ca-file ca.crt`

// minInterval is how often a report changes: spillway makes one a second at most.
const minInterval = time.Second

// topOptions are the flags of the command top.
type topOptions struct {
	address, tokenFile, caFile, sort string
	interval                         time.Duration
	once                             bool
}

// newTop returns the command that shows the status of a running proxy.
func newTop() *cobra.Command {
	o := &topOptions{}
	cmd := &cobra.Command{
		Use:     "top [flags]",
		Short:   "Show mirrors, watches and their lag in a terminal",
		Long:    topHelp,
		Example: topExamples,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.address, "address", "http://"+config.New().MetricsListen, "The `URL` of spillway's --metrics-listen.")
	fs.StringVar(&o.tokenFile, "token-file", "",
		"Authenticate by the bearer token in this `file`, which is read for each report. The token goes over https, "+
			"except on loopback.")
	fs.StringVar(&o.caFile, "ca-file", "", "Trust the certificates in this PEM `file`, instead of the system's.")
	fs.DurationVar(&o.interval, "interval", 2*time.Second, "Request another report after this `duration`, at least 1s.")
	fs.StringVar(&o.sort, "sort", status.DefaultQuery().WatchOrder.String(),
		"Sort watches by this `column`. A minus sign in front of its name reverses the order.")
	fs.BoolVar(&o.once, "once", false, "Print one report as plain text, and exit.")
	return newSubcommand(cmd)
}

func (o *topOptions) run(cmd *cobra.Command) error {
	shown, err := o.options()
	if err != nil {
		return err
	}
	if o.once || !isTerminal(cmd.OutOrStdout()) {
		return top.Once(cmd.Context(), shown, cmd.OutOrStdout())
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return top.Run(ctx, shown, cmd.OutOrStdout())
}

// isTerminal reports whether a screen can be drawn on what is written to.
func isTerminal(out io.Writer) bool {
	file, isFile := out.(*os.File)
	if !isFile {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// options checks the flags. An error is one line that names the remedy.
func (o *topOptions) options() (top.Options, error) {
	base, err := top.ParseBase(o.address)
	if err != nil {
		return top.Options{}, fmt.Errorf("--address=%s: %w", o.address, err)
	}
	if o.tokenFile != "" {
		if _, err := os.ReadFile(o.tokenFile); err != nil {
			return top.Options{}, fmt.Errorf("--token-file=%s: cannot be read: %s", o.tokenFile, config.Cause(err))
		}
		if base.Scheme == "http" && !onLoopback(base) {
			return top.Options{}, fmt.Errorf(
				"--address=%s: a token is not sent over plain HTTP to another machine: use https, and --metrics-tls there",
				o.address)
		}
	}
	if o.interval < minInterval {
		return top.Options{}, fmt.Errorf("--interval=%s: must be at least %s", o.interval, minInterval)
	}
	order, err := status.ParseOrder(o.sort)
	if err != nil {
		return top.Options{}, fmt.Errorf("--sort=%w", err)
	}
	transport, err := newTransport(base, "address", o.caFile)
	if err != nil {
		return top.Options{}, err
	}
	client := &top.Fetcher{Base: base, TokenFile: o.tokenFile, Transport: transport}
	return top.Options{Client: client, Interval: o.interval, Order: order}, nil
}
