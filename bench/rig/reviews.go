package rig

import "context"

// Reviews are how many there were about tokens and about access.
type Reviews struct{ Tokens, Access float64 }

// Reviews is how many the kube-apiserver that is compared was sent so far.
func (p *Pair) Reviews(ctx context.Context) (Reviews, error) {
	const requests = "apiserver_request_total"
	m, err := p.Metrics().Read(ctx, requests)
	if err != nil {
		return Reviews{}, err
	}
	return Reviews{Tokens: m.Sum(requests, "resource", "tokenreviews"),
		Access: m.Sum(requests, "resource", "subjectaccessreviews")}, nil
}

// Checks is how often the proxy has checked the credentials and the permissions that watches run
// by, and how many watches it holds now because they could not be checked in time.
func (p *Proxy) Checks(ctx context.Context) (checked Reviews, held float64, err error) {
	const checks, holds = "spillway_reauthorizations_total", "spillway_paused_watches"
	m, err := p.Metrics().Read(ctx, checks, holds)
	if err != nil {
		return Reviews{}, 0, err
	}
	return Reviews{Tokens: m.Sum(checks, "check", "credential"), Access: m.Sum(checks, "check", "permission")},
		m.Sum(holds), nil
}

// Streams is how many watches the proxy serves from memory now.
func (p *Proxy) Streams(ctx context.Context) (float64, error) {
	const streams = "spillway_watches"
	m, err := p.Metrics().Read(ctx, streams)
	return m.Sum(streams), err
}

// Since are those that there were since there were as many as before.
func (r Reviews) Since(before Reviews) Reviews {
	return Reviews{r.Tokens - before.Tokens, r.Access - before.Access}
}

// Per is how many there were in one of so many seconds.
func (r Reviews) Per(seconds float64) Reviews { return Reviews{r.Tokens / seconds, r.Access / seconds} }

// Sum is how many of both.
func (r Reviews) Sum() float64 { return r.Tokens + r.Access }
