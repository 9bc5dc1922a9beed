// Package top shows in a terminal what the status page of a running proxy shows.
//
// Invariant: what comes over the network is text in cells and moves no cursor, whatever it
// contains; and the token is sent to no address but the given one.
package top

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"spillway/internal/status"
)

// Options say what is shown.
type Options struct {
	Client   *Fetcher
	Interval time.Duration
	Order    status.Order
}

// Once writes one report as plain text.
func Once(ctx context.Context, o Options, out io.Writer) error {
	q := o.query()
	report, err := o.Client.Report(ctx, q)
	if err != nil {
		return err
	}
	return report.WriteText(out, q)
}

// Run shows reports on the terminal, until the user ends it.
func Run(ctx context.Context, o Options, in io.Reader, out io.Writer) error {
	first, err := o.Client.Report(ctx, o.query()) // what is wrong is said in one line, not on a screen
	if err != nil {
		return err
	}
	_, err = tea.NewProgram(newModel(ctx, o, first), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out)).Run()
	if errors.Is(err, tea.ErrInterrupted) || ctx.Err() != nil {
		return nil
	}
	return err
}

func (o Options) query() status.Query {
	q := status.DefaultQuery()
	q.Watches = o.Order
	return q
}
