package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// fault is something that breaks and is mended again.
type fault struct {
	name    string
	touches []string // faults that touch the same do not come together
	effects []effect
	inject  func(context.Context, *world) error
	heal    func(context.Context, *world) error
}

// What faults touch.
const (
	theProxy, theAPIServer, theEtcd, theDefinition, theClock, theWebhook = "proxy", "apiserver", "etcd", "definition",
		"clock", "webhook"
	clientsLink, upstreamLink, etcdLink = "link to the proxy", "link to the API server",
		"link to etcd"
)

// vanishes is the death of the proxy's machine.
const vanishes = "proxy vanishes"

// What the effects of upstream's absence are, of an API server that is started again, and of the
// proxy's absence.
var (
	upstreamGone = []effect{cut, refuse, seam, expire}
	proxyGone    = []effect{cut, refuse, expire}
	upstreamNew  = append([]effect{deny}, upstreamGone...)
)

// faults are all there are.
func faults() []fault {
	all := []fault{
		{"proxy killed", []string{theProxy}, proxyGone, killProxy, startProxy},
		{"proxy frozen", []string{theProxy}, proxyGone, freezeProxy, thawProxy},
		clockJumps("5 minutes ahead", 5*time.Minute),
		clockJumps("a day ahead", 24*time.Hour),
		clockJumps("an hour behind", -time.Hour),
		clockJumps("a day behind", -24*time.Hour),
		{vanishes, []string{theProxy, clientsLink}, proxyGone, vanish, reappear},
		{"logs on a full disk", []string{theProxy}, proxyGone, fillDisk, emptyDisk},
		{"API server killed", []string{theAPIServer}, upstreamNew, killAPIServer, startAPIServer},
		{"API server restarted", []string{theAPIServer}, upstreamNew, stopAPIServer, startAPIServer},
		frozen(theAPIServer, func(w *world) *controlplane.Process { return w.cp.APIServer() }),
		{"etcd killed", []string{theEtcd}, upstreamGone, killEtcd, startEtcd},
		frozen(theEtcd, func(w *world) *controlplane.Process { return w.cp.Etcd() }),
		{"history forgotten", []string{theAPIServer, theEtcd, upstreamLink}, upstreamNew, forget, remember},
		{"etcd compacted", []string{theEtcd, etcdLink}, upstreamGone, compact, nothing},
		restored("etcd restored", 0),
		restored("etcd restored, revisions skipped", 1000),
		{"definition removed", []string{theDefinition}, []effect{cut, refuse, seam, expire, remove}, undefine, define},
		{
			"partition",
			[]string{clientsLink, upstreamLink},
			upstreamGone,
			setLinks(LinkConditions{Held: true}),
			setLinks(LinkConditions{}),
		},
		lagging(),
		{"one of two addresses of the API server dead", []string{upstreamLink}, []effect{cut, refuse}, loseAddress,
			setUpstream(LinkConditions{})},
		{"webhook stalled", []string{theWebhook}, []effect{refuse}, stallWebhook(true), stallWebhook(false)},
		{"webhook failing", []string{theWebhook}, []effect{refuse}, failWebhook(true), failWebhook(false)},
		slugs("slow clients", true),
		slugs("dead clients", false),
	}
	for _, l := range []struct {
		name    string
		of      func(*world) conditionedLink
		effects []effect
	}{
		{clientsLink, func(w *world) conditionedLink { return w.clients }, []effect{cut}},
		{upstreamLink, func(w *world) conditionedLink { return w.upstream }, upstreamGone},
		{etcdLink, func(w *world) conditionedLink { return w.etcd }, upstreamGone},
	} {
		set := func(weather LinkConditions) func(context.Context, *world) error {
			return func(_ context.Context, w *world) error {
				l.of(w).Set(weather)
				return nil
			}
		}
		reset := func(_ context.Context, w *world) error {
			l.of(w).Reset()
			return nil
		}
		all = append(
			all,
			fault{l.name + " reset", []string{l.name}, l.effects, reset, reset},
			fault{l.name + " half-open", []string{l.name}, l.effects, set(LinkConditions{Silent: true}), set(LinkConditions{})},
			fault{l.name + " stalled", []string{l.name}, l.effects, set(LinkConditions{Held: true}), set(LinkConditions{})},
			fault{l.name + lossy(), []string{l.name}, l.effects, set(LinkConditions{Loss: 0.02, Latency: 2 * time.Millisecond}),
				set(LinkConditions{})},
			fault{l.name + " far (300 ms)", []string{l.name}, l.effects, set(LinkConditions{Latency: 300 * time.Millisecond}),
				set(LinkConditions{})},
			fault{
				l.name + " narrow (100 kB/s)",
				[]string{l.name},
				l.effects,
				set(LinkConditions{Bandwidth: 100_000}),
				set(LinkConditions{}),
			},
		)
	}
	return all
}

// conditionedLink is a link, or several.
type conditionedLink interface {
	Set(LinkConditions)
	Reset()
}

// loseAddress makes nothing arrive any more at the address of the API server that all connections
// try first. Connections are reset, so that others are opened at once; the other address is as good
// as ever.
func loseAddress(_ context.Context, w *world) error {
	w.upstream[0].Set(LinkConditions{Held: true, Loss: 1})
	w.upstream[0].Reset()
	return nil
}

func setUpstream(weather LinkConditions) func(context.Context, *world) error {
	return func(_ context.Context, w *world) error {
		w.upstream.Set(weather)
		return nil
	}
}

// lossy says how packets are lost.
func lossy() string {
	if noLoss() != nil {
		return " lossy (2 %, made up by delays)"
	}
	return " lossy (2 % of packets)"
}

// clockJumps is the proxy's wall clock that is wrong for a while, and then right at once. It
// excuses nothing.
func clockJumps(name string, by time.Duration) fault {
	set := func(ahead time.Duration) func(context.Context, *world) error {
		return func(_ context.Context, w *world) error { return w.clock.Set(ahead) }
	}
	return fault{"clock " + name, []string{theClock}, nil, set(by), set(0)}
}

func stallWebhook(held bool) func(context.Context, *world) error {
	return func(_ context.Context, w *world) error {
		w.webhook.link.Set(LinkConditions{Held: held})
		return nil
	}
}

func failWebhook(failing bool) func(context.Context, *world) error {
	return func(_ context.Context, w *world) error {
		w.webhook.failing.Store(failing)
		return nil
	}
}

func killProxy(_ context.Context, w *world) error {
	w.proxy.kill()
	return nil
}
func startProxy(_ context.Context, w *world) error  { return w.proxy.start("") }
func freezeProxy(_ context.Context, w *world) error { return w.proxy.signal(syscall.SIGSTOP) }
func thawProxy(_ context.Context, w *world) error   { return w.proxy.signal(syscall.SIGCONT) }

// vanish ends connections without a FIN or a reset.
func vanish(_ context.Context, w *world) error {
	w.clients.Set(LinkConditions{Silent: true})
	w.proxy.kill()
	return nil
}

func reappear(_ context.Context, w *world) error {
	w.clients.Set(LinkConditions{})
	return w.proxy.start("")
}

func fillDisk(_ context.Context, w *world) error {
	w.proxy.kill()
	return w.proxy.start(fullDisk)
}

func emptyDisk(_ context.Context, w *world) error {
	if err := w.proxy.well(); err != nil {
		return err
	}
	w.proxy.kill()
	return w.proxy.start("")
}

func killAPIServer(_ context.Context, w *world) error {
	w.cp.APIServer().Kill()
	return nil
}

func stopAPIServer(_ context.Context, w *world) error {
	w.cp.APIServer().Stop(2 * time.Second)
	return nil
}
func startAPIServer(ctx context.Context, w *world) error { return w.cp.StartAPIServer(ctx) }

func killEtcd(_ context.Context, w *world) error {
	w.cp.Etcd().Kill()
	return nil
}
func startEtcd(ctx context.Context, w *world) error { return w.cp.StartEtcd(ctx) }

// frozen is a process that stands still. It is thawed as it is: the control plane may have another
// one by then.
func frozen(name string, of func(*world) *controlplane.Process) fault {
	var p *controlplane.Process
	return fault{name + " frozen", []string{name}, upstreamGone, func(_ context.Context, w *world) error {
		p = of(w)
		return p.Freeze()
	}, func(context.Context, *world) error {
		return p.Thaw()
	}}
}

// forget lets things happen of which the proxy can never learn: it is cut off, then the API server
// dies and its history with it.
func forget(ctx context.Context, w *world) error {
	w.upstream.Set(LinkConditions{Held: true})
	pause(ctx, 500*time.Millisecond)
	return nil
}

func remember(ctx context.Context, w *world) error {
	w.cp.APIServer().Kill()
	w.upstream.Reset()
	err := w.compact(ctx)
	if err == nil {
		err = w.cp.StartAPIServer(ctx)
	}
	w.upstream.Set(LinkConditions{})
	return err
}

// compact discards etcd's history, and makes the API server request it.
func compact(ctx context.Context, w *world) error {
	err := w.compact(ctx)
	w.etcd.Reset()
	return err
}

func nothing(context.Context, *world) error { return nil }

// compact waits for the recorder, which needs history too.
func (w *world) compact(ctx context.Context) error {
	if _, err := w.recorder.caughtUp(ctx); err != nil {
		return err
	}
	_, err := w.cp.Compact(ctx)
	return err
}

// restored is etcd put back to how it was some time ago, with its revisions raised by skip
// afterwards. The API server is started again, as the restore of an etcd requires. If its revisions
// are not raised there are no writes before all have noticed: the other history can be recognised
// only until it has counted up to the revisions of the first.
func restored(name string, skip int) fault {
	var backup string
	return fault{name, []string{theAPIServer, theEtcd, etcdLink, theProxy, theDefinition},
		append([]effect{rewrite}, upstreamNew...),
		func(_ context.Context, w *world) error {
			var err error
			if backup, err = os.MkdirTemp(w.dir, "backup"); err != nil {
				return err
			}
			backup = filepath.Join(backup, "etcd")
			return w.cp.BackupEtcd(backup)
		}, func(ctx context.Context, w *world) error {
			w.pen.Lock()
			defer w.pen.Unlock()
			if _, err := w.recorder.caughtUp(ctx); err != nil {
				return err
			}
			w.cp.APIServer().Kill()
			if err := w.cp.RestoreEtcd(ctx, backup); err != nil {
				return err
			}
			revision, err := w.cp.Revision(ctx)
			if err == nil && skip > 0 {
				_, err = w.cp.SkipRevisions(ctx, skip)
			}
			if err == nil {
				err = w.recorder.restored(ctx, revision)
			}
			if err == nil {
				err = w.cp.StartAPIServer(ctx)
			}
			if err == nil && skip == 0 {
				err = eventually(ctx, w.wentBack)
			}
			return errors.Join(err, os.RemoveAll(filepath.Dir(backup)))
		}}
}

// wentBack succeeds when neither a mirror nor a client that goes on from where it was holds
// anything newer than etcd. An informer lists again if it was refused.
func (w *world) wentBack(ctx context.Context) error {
	revision, err := w.cp.Revision(ctx)
	if err != nil {
		return err
	}
	for _, r := range resources {
		through, err := process.ReadMetric(ctx, w.proxy.metrics, `spillway_mirror_resource_version{resource="`+
			r.GroupResource().String()+`"`)
		if err != nil || through == 0 || int64(through) > revision {
			return errors.Join(err, fmt.Errorf("the mirror of %s is at %d, and etcd at %d", r.Resource, through, revision))
		}
	}
	return w.cast.behind(uint64(revision))
}

// lagging is another API server behind the same address, that receives nothing from etcd once it is
// ready: it answers from the state that it has, or not at all, while the first one has a newer one
// (W-232).
func lagging() fault {
	var toEtcd *Link
	var peer *controlplane.Peer
	return fault{"one of two API servers behind", []string{theAPIServer, theEtcd, upstreamLink}, upstreamNew,
		func(ctx context.Context, w *world) error {
			var err error
			if toEtcd, err = NewLink(w.cp.EtcdAddress()); err != nil {
				return err
			}
			if peer, err = w.cp.StartPeerBehind(ctx, toEtcd.Address()); err != nil {
				return err
			}
			w.upstream.Lead(hostOf(w.cp.URL()), hostOf(peer.URL()))
			w.upstream.Reset()
			pause(ctx, 500*time.Millisecond)
			toEtcd.Set(LinkConditions{Held: true})
			return nil
		}, func(_ context.Context, w *world) error {
			w.upstream.Lead(hostOf(w.cp.URL()))
			if peer != nil {
				peer.Kill()
			}
			if toEtcd != nil {
				toEtcd.Close()
			}
			return nil
		}}
}

func hostOf(url string) string { return strings.TrimPrefix(url, "https://") }

func undefine(ctx context.Context, w *world) error { return w.undefine(ctx) }
func define(ctx context.Context, w *world) error   { return w.define(ctx) }

// setLinks is weather on both sides of the proxy.
func setLinks(weather LinkConditions) func(context.Context, *world) error {
	return func(_ context.Context, w *world) error {
		w.clients.Set(weather)
		w.upstream.Set(weather)
		return nil
	}
}

// slugs is a crowd that reads next to nothing.
func slugs(name string, read bool) fault {
	var crowd *slowClients
	return fault{name, []string{name}, nil, func(_ context.Context, w *world) (err error) {
		crowd, err = newSlowClients(w.endpoint(readerUser), 40, read)
		return err
	}, func(context.Context, *world) error {
		crowd.leave()
		return nil
	}}
}

// step is a fault of a schedule.
type step struct {
	fault
	at, lasts time.Duration
	began     time.Time // once it has
}

// schedule is what breaks in a run, and when.
type schedule []step

func (s schedule) String() string {
	var steps []string
	for _, step := range s {
		steps = append(steps, fmt.Sprintf("%s at %.1f s for %.1f s", step.name, step.at.Seconds(), step.lasts.Seconds()))
	}
	return strings.Join(steps, ", ")
}

// guarded reports that in the run of a seed every client has to authenticate.
func guarded(seed uint64) bool { return rand.New(rand.NewPCG(seed, 11)).IntN(2) == 0 }

// newSchedule is that of a seed: of even ones a single fault, each in its turn; of odd ones a few
// at random.
func newSchedule(seed uint64) schedule {
	random, all := rand.New(rand.NewPCG(seed, 7)), faults()
	lasts := func() time.Duration { return 300*time.Millisecond + time.Duration(random.IntN(3700))*time.Millisecond }
	if seed%2 == 0 {
		return schedule{{fault: all[seed/2%uint64(len(all))], lasts: lasts()}}
	}
	var s schedule
	touched := map[string]bool{}
	n := 2 + random.IntN(3)
	for _, i := range random.Perm(len(all)) {
		f := all[i]
		if len(s) == n || slices.ContainsFunc(f.touches, func(what string) bool { return touched[what] }) {
			continue
		}
		for _, what := range f.touches {
			touched[what] = true
		}
		s = append(s, step{fault: f, at: time.Duration(random.IntN(2500)) * time.Millisecond, lasts: lasts()})
	}
	return s
}
