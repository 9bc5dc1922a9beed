// Command identities compares what many clients with a different user each cost a kube-apiserver:
// directly, and through Spillway, which repeatedly reviews upstream each client's token and its
// permission to watch what it watches.
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
	rate       = flag.Float64("rate", 2,
		"events per second of each of the four resources; a Service is watched by all, the others by one namespace each")
	settling = flag.Duration("settle", 45*time.Second,
		"how long watches are open before anything is measured: until all that was asked for their start is forgotten")
	window   = flag.Duration("window", time.Minute, "how long each side is measured")
	settings = settingsFlag{{name: "defaults: ", limit: rig.NoLimit},
		{flags: rightsKnownHere, limit: rig.AtMost(0.05, 0.02)}}
)

// rightsKnownHere is what docs/sizing.md recommends for thousands of clients: rights are watched
// and decide here, so that a sweep may be slow, and tokens are verified by keys. The limit on what
// reviews may cost kube-apiserver, as a fraction of what the same watches cost it, holds for these
// flags. By the defaults each credential and each permission is reviewed within 25 seconds, which
// no kube-apiserver answers for that little: that cost is reported, not judged.
const rightsKnownHere = "--authorization-local-rbac --authentication-local-jwks=unbound " +
	"--api-audiences=https://kubernetes.default.svc --reauthorization-interval=1m"

// setting is one way to run Spillway.
type setting struct {
	name  string // in front of its figures in the table
	flags string
	limit rig.Limit
}

// settingsFlag are the settings that are measured, one after the other. The first are the defaults.
type settingsFlag []setting

// String implements flag.Value: what has been added.
func (s *settingsFlag) String() string {
	var added []string
	for _, one := range (*s)[min(2, len(*s)):] {
		added = append(added, one.flags)
	}
	return strings.Join(added, ", ")
}

// Set implements flag.Value.
func (s *settingsFlag) Set(flags string) error {
	if flags == "" {
		return errors.New("no flags")
	}
	*s = append(*s, setting{name: fmt.Sprintf("setting %d: ", len(*s)-1), flags: flags, limit: rig.NoLimit})
	return nil
}

func main() {
	flag.Var(&settings, "proxy-flags", "measure a proxy with these flags, separated by spaces, too; may be repeated")
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
	var by []settingCost
	for _, one := range settings {
		t, err := m.through(ctx, one)
		if err != nil {
			return fmt.Errorf("through Spillway %s: %w", one.flags, err)
		}
		by = append(by, t)
	}
	direct, err := m.watched(ctx, pair.APIServer)
	if err != nil {
		return fmt.Errorf("at kube-apiserver: %w", err)
	}
	for _, t := range by {
		scores.Note(t.name+"flags", "`%s`", t.flags)
		t.report(scores, idle, by[0].mirrors, direct)
	}
	return nil
}

// settingCost is what one setting of Spillway costs.
type settingCost struct {
	setting
	mirrors usage // without clients
	crowd   usage
}

// settingCost measures Spillway with one setting.
func (m *measurement) through(ctx context.Context, one setting) (settingCost, error) {
	t := settingCost{setting: one}
	err := m.pair.StartProxyAs(ctx, m.kubeconfig, crowd.Resources, strings.Fields(one.flags)...)
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

// report writes what a setting came to. Reviews are all that upstream has to do beside what it has
// for the mirrors of a proxy without clients and without flags: also for whatever makes reviews
// unnecessary.
func (t *settingCost) report(scores *rig.Scores, idle, mirrors, direct usage) {
	watches := direct.upstream - idle.upstream
	reviews := t.crowd.upstream - mirrors.upstream
	all := t.crowd.upstream - idle.upstream
	one := func(f float64) []float64 { return []float64{f} }
	scores.Ratio(fmt.Sprintf("%sCPU of kube-apiserver: reviews, against %d watches", t.name, *identities*crowd.Watches),
		rig.Busy, one(reviews), one(watches), t.limit)
	scores.Ratio(t.name+"CPU of kube-apiserver: all, the mirrors' watches included", rig.Busy, one(all), one(watches),
		rig.NoLimit)
	scores.Figure(t.name+"TokenReviews that reached it", "", rig.PerSecond, one(t.crowd.reviews.Tokens),
		one(direct.reviews.Tokens), rig.NoLimit)
	scores.Figure(t.name+"SubjectAccessReviews that reached it", "", rig.PerSecond, one(t.crowd.reviews.Access),
		one(direct.reviews.Access), rig.NoLimit)
	scores.Note(t.name+"checks of running watches, by Spillway's own count",
		"%.0f/s of credentials, %.0f/s of permissions; %.0f watches are held for want of one",
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
	if direct.trouble != "" && t.limit != rig.NoLimit {
		scores.Miss("not all arrived", "kube-apiserver: %s", direct.trouble)
	}
}
