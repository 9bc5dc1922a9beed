// Command identities compares what many clients cost a kube-apiserver who are all somebody else: by themselves, and by way of Spillway,
// which asks upstream again and again who each of them is and whether he still may watch what he watches.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/crowd"
	"spillway/bench/rig/swarm"
)

var (
	identities = flag.Int("identities", 5000, "service accounts, each with a token, a connection and four watches")
	rate       = flag.Float64("rate", 2, "events per second of each of the four resources; a Service is watched by all, the others by one namespace each")
	settling   = flag.Duration("settle", 45*time.Second, "how long watches are open before anything is measured: until all that was asked for their start is forgotten")
	window     = flag.Duration("window", time.Minute, "how long each side is measured")
	settings   = settingsFlag{""}
)

// limit is of what the reviews may cost the kube-apiserver, as a part of what the same watches cost it.
var limit = rig.AtMost(0.05, 0.02)

// settingsFlag are the flags of the proxies that are measured, one after the other. The first has none.
type settingsFlag []string

// String implements flag.Value.
func (s *settingsFlag) String() string { return fmt.Sprintf("%q", []string(*s)[min(1, len(*s)):]) }

// Set implements flag.Value.
func (s *settingsFlag) Set(flags string) error {
	if flags == "" {
		return errors.New("no flags")
	}
	*s = append(*s, flags)
	return nil
}

func main() {
	flag.Var(&settings, "proxy-flags", "measure a proxy with these flags, separated by spaces, beside the one without; may be repeated")
	rig.Measure("identities", run)
}

func run(ctx context.Context, scores *rig.Scores) error {
	pair, err := rig.StartAPIServers(ctx)
	if err != nil {
		return err
	}
	defer pair.Stop()
	m := measurement{pair: pair}
	if m.kubeconfig, err = pair.ProxyKubeconfig(ctx); err != nil {
		return err
	}
	if m.crowd, err = crowd.New(ctx, pair, *identities); err != nil {
		return err
	}
	idle, err := m.measure(ctx, nil, 0)
	if err != nil {
		return err
	}
	var by []through
	for _, flags := range settings {
		t, err := m.through(ctx, flags)
		if err != nil {
			return fmt.Errorf("through Spillway %s: %w", flags, err)
		}
		by = append(by, t)
	}
	direct, err := m.watched(ctx, pair.APIServer)
	if err != nil {
		return fmt.Errorf("at kube-apiserver: %w", err)
	}
	for i, t := range by {
		if i > 0 {
			t.name = fmt.Sprintf("setting %d: ", i)
			scores.Note(fmt.Sprintf("setting %d", i), "`%s`", t.flags)
		}
		t.report(scores, idle, by[0].mirrors, direct)
	}
	return nil
}

// through is what one setting of Spillway costs.
type through struct {
	flags   string
	name    string // in the table
	mirrors usage  // without clients
	crowd   usage
}

// through measures Spillway with one setting.
func (m *measurement) through(ctx context.Context, flags string) (through, error) {
	t := through{flags: flags}
	err := m.pair.StartProxyAs(ctx, m.kubeconfig, crowd.Resources, strings.Fields(flags)...)
	if err == nil {
		defer m.pair.StopProxy()
		err = m.pair.Settle(ctx)
	}
	if err == nil {
		t.mirrors, err = m.measure(ctx, nil, 0)
	}
	if err == nil {
		t.crowd, err = m.watched(ctx, m.pair.Spillway)
	}
	return t, err
}

// watched measures the whole crowd at a server.
func (m *measurement) watched(ctx context.Context, server rig.Server) (usage, error) {
	o, err := m.crowd.Options(ctx, server, crowd.Watches)
	if err != nil {
		return usage{}, err
	}
	began := time.Now()
	s, err := swarm.Start(ctx, o)
	if err != nil {
		return usage{}, err
	}
	defer s.Close()
	rig.Say("%s: %d watches are open after %s", server.Name, len(o.Targets), time.Since(began).Round(time.Second))
	return m.measure(ctx, s, *settling)
}

// report writes what a setting came to. Reviews are all that upstream has to do beside what it has for the mirrors of a proxy without clients and
// without flags: also for whatever makes reviews unnecessary.
func (t *through) report(scores *rig.Scores, idle, mirrors, direct usage) {
	watches := direct.upstream - idle.upstream
	reviews := t.crowd.upstream - mirrors.upstream
	all := t.crowd.upstream - idle.upstream
	one := func(f float64) []float64 { return []float64{f} }
	scores.Ratio(fmt.Sprintf("%sCPU of kube-apiserver: reviews, against %d watches", t.name, *identities*crowd.Watches), rig.Busy, one(reviews), one(watches), limit)
	scores.Ratio(t.name+"CPU of kube-apiserver: all, the mirrors' watches included", rig.Busy, one(all), one(watches), rig.NoLimit)
	scores.Figure(t.name+"TokenReviews that reached it", "", rig.PerSecond, one(t.crowd.reviews.Tokens), one(direct.reviews.Tokens), rig.NoLimit)
	scores.Figure(t.name+"SubjectAccessReviews that reached it", "", rig.PerSecond, one(t.crowd.reviews.Access), one(direct.reviews.Access), rig.NoLimit)
	scores.Note(t.name+"checks of running watches, by Spillway's own count", "%.0f/s of credentials, %.0f/s of permissions; %.0f watches are held for want of one",
		t.crowd.checks.Tokens, t.crowd.checks.Access, t.crowd.held)
	if n := t.crowd.reviews.Sum(); n >= 1 {
		scores.Figure(t.name+"CPU of kube-apiserver per review", "", rig.Micros, one(reviews*1e3/n), nil, rig.NoLimit)
	}
	scores.Ratio(t.name+"CPU of the server that has the watches", rig.Busy, one(t.crowd.proxy), one(watches), rig.NoLimit)
	scores.Ratio(t.name+"both together", rig.Busy, one(t.crowd.proxy+all), one(watches), rig.NoLimit)
	scores.Figure(t.name+"deliveries", "", rig.PerSecond, one(t.crowd.deliveries), one(direct.deliveries), rig.NoLimit)
	if t.crowd.trouble != "" {
		scores.Miss(t.name+"not all arrived", "Spillway: %s", t.crowd.trouble)
	}
	if direct.trouble != "" && t.name == "" {
		scores.Miss("not all arrived", "kube-apiserver: %s", direct.trouble)
	}
}
