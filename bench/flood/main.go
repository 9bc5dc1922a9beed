// Command flood shows that connections which bring nothing, or a byte a second, do not keep a
// normal client out: half-open ones and slow senders by the thousand, over plain HTTP and TLS, are
// opened again as soon as they are cut, while a client lists over new connections and watches. It
// prints what the client waits for with and without them, how many were cut, and what one costs in
// memory.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/bench/rig"
	"spillway/test/framework/controlplane"
)

var (
	halfOpen = flag.Int("half-open", 5000, "connections on which no request begins, or no handshake ends")
	slow     = flag.Int("slow", 2000, "connections that send a byte a second of a head or a body")
	shaped   = flag.Bool("shapes", false, "only clients without credentials that hold what others need, in each shape")
	only     = flag.String("only", "", "only shapes whose name contains this")
	grown    = flag.Bool("heads", false, "only heads that grow: small on the wire, and a megabyte once they are decoded")
	storm    = flag.Duration("storm", 45*time.Second, "how long to measure without and with them: longer than any head")
)

func main() {
	if len(os.Args) == 5 && os.Args[1] == attackers {
		attackAll(os.Args[2], os.Args[3], os.Args[4])
		return
	}
	rig.Main("flood", run)
}

func run(ctx context.Context, r *rig.Report) error {
	cp, err := rig.StartControlPlane(ctx)
	if err != nil {
		return err
	}
	defer cp.Stop()
	config := cp.Config(controlplane.Admin)
	config.QPS = -1
	direct, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	token, err := newNormalUser(ctx, direct)
	if err != nil {
		return err
	}
	if *grown || *shaped {
		ca := filepath.Join(cp.Dir(), "flood-ca.pem")
		if err := os.WriteFile(ca, cp.CA(), 0o600); err != nil {
			return err
		}
		p, err := rig.StartProxy(ctx, cp.Kubeconfig(controlplane.Admin), "--resources=configmaps", "--listen-tls=127.0.0.1:0",
			"--client-ca-file="+ca)
		if err != nil {
			return err
		}
		defer p.Kill()
		if *grown {
			return heads(ctx, p, direct, token, r)
		}
		return attackShapes(ctx, p, config.Host, direct, token, r)
	}
	for _, part := range []struct {
		name string
		args []string
	}{
		{"with room for all of them", nil},
		{"with room for half of them", []string{fmt.Sprintf("--max-connections=%d", (*halfOpen+*slow)/2)}},
	} {
		rig.Say("%s", part.name)
		args := append([]string{"--resources=configmaps", "--listen-tls=127.0.0.1:0", "--insecure-allow-all"}, part.args...)
		p, err := rig.StartProxy(ctx, cp.Kubeconfig(controlplane.Admin), args...)
		if err != nil {
			return err
		}
		err = weather(ctx, p, direct, token, r, part.name)
		p.Kill()
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// weather measures a normal client without the flood and with it.
func weather(ctx context.Context, p *rig.Proxy, direct kubernetes.Interface, token string, r *rig.Report,
	name string) error {
	client, err := newClient(ctx, &rest.Config{Host: p.TLSURL, QPS: -1, BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, direct)
	if err != nil {
		return err
	}
	defer client.stop()
	before, err := p.Memory(ctx)
	if err != nil {
		return err
	}
	without := client.measure(ctx, *storm)
	flood := newFlood(p)
	if err := flood.rise(ctx); err != nil {
		flood.fall()
		return err
	}
	during, err := p.Memory(ctx)
	if err != nil {
		flood.fall()
		return err
	}
	open := flood.open.Load()
	with := client.measure(ctx, *storm)
	metrics, err := p.Metrics().Read(ctx, "spillway_evicted_connections_total", "spillway_client_connections",
		"spillway_panics_total")
	flood.fall()
	if err != nil {
		return err
	}

	r.Note(name+": without", "%s", without)
	r.Note(name+": with", "%s", with)
	r.Check(with.failed == 0 && len(with.list) > 0,
		name+": every LIST of the client, each over a connection of its own, is answered", "%d of %d", len(with.list),
		len(with.list)+with.failed)
	r.Check(with.broken == 0 && len(with.event) > 0, name+": its watch gets its events",
		"%d events, %d watches that ended", len(with.event), with.broken)
	r.Check(flood.cut.Load() > 0, name+": those of the flood are cut", "%d times by the end; opened %d times",
		flood.cut.Load(), flood.opened.Load())
	r.Note(name+": made room for others", "%.0f", metrics.Sum("spillway_evicted_connections_total"))
	r.Check(metrics.Sum("spillway_panics_total") == 0, name+": no panic", "%.0f", metrics.Sum("spillway_panics_total"))
	if open > 0 {
		r.Note(name+": memory of one", "%d B of heap, %d B resident (%d were open; %d goroutines, were %d)",
			(during.Heap-before.Heap)/open, (during.RSS-before.RSS)/open, open, during.Goroutines, before.Goroutines)
	}
	return nil
}
