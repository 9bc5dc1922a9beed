package watchstart

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
	"spillway/test/framework/relay"
)

var (
	count = flag.Int("starts", 60, "how many watches to start for each lateness")
	lates = flag.String("late", "0,5ms,100ms,700ms,3s,5s,random,never",
		"how late upstream answers Spillway's questions: times, random and never")
	workers = flag.Int("workers", 4, "how many watches to start at a time, for each lateness")
	busy    = flag.Int("busy", 0, "how many goroutines keep the machine busy meanwhile")
	seed    = flag.Uint64("seed", 1, "what the order of starts is made from")
	only    = flag.String("only", "", "start only watches whose description contains this text")
)

// patience bounds one watch. It decides nothing but how long a failing run takes.
const patience = time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	// Watches wait, above all, so the number of runs at a time is not a matter of processors.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err) // the flag exists
	}
	os.Exit(m.Run())
}

// A client that writes the moment it has the head of a watch finds every write in it, as in the
// same watch of the API server, however late the API server answers Spillway's own questions
// (W-100, W-102, W-103, W-105).
func TestWhatFollowsTheHeadIsSeen(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	binary := process.BuildProxy(t)
	process.KeepBusy(t, *busy)
	// The group ends when all of its tests have, and the control plane only then.
	t.Run("late", func(t *testing.T) {
		for i, late := range strings.Split(*lates, ",") {
			t.Run(late, func(t *testing.T) {
				t.Parallel()
				run := startRun(t, cp, binary, late, i)
				run.play(t, order(uint64(i)), *count, math.MaxInt)
				t.Log(run.tally)
				run.tally.check(t, run.answers.Prompt())
			})
		}
	})
}

// TestALateSnapshotIsCaught starts watches through a proxy that fixes their place in history after
// their heads.
func TestALateSnapshotIsCaught(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	run := startRun(t, cp, process.BuildFaultyProxy(t, process.LateSnapshot), "0", 0)
	run.play(t, order(0), 100, 1)
	if len(run.tally.lost) == 0 {
		t.Errorf("not caught: %s", run.tally)
		return
	}
	t.Log("caught:", run.tally.lost[0])
}

// order is all starts in an order of its own for each number.
func order(number uint64) []start {
	var all []start
	for _, s := range starts() {
		if strings.Contains(s.String(), *only) {
			all = append(all, s)
		}
	}
	random := rand.New(rand.NewPCG(*seed, number))
	random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all
}

// run is a proxy whose questions are answered late, and the workers that watch through it.
type run struct {
	answers relay.Answers
	workers []*worker
	tally   *tally
}

func startRun(t *testing.T, cp *controlplane.ControlPlane, binary, late string, number int) *run {
	t.Helper()
	r := &run{tally: newTally()}
	if err := r.answers.Set(late); err != nil {
		t.Fatal(err)
	}
	config := cp.Config(controlplane.Admin)
	upstream := relay.New(t, config, r.answers.Lateness)
	proxy := process.StartProxy(t, binary, "--kubeconfig="+upstream.Kubeconfig(t), "--resources=configmaps", "--listen=",
		"--listen-tls=127.0.0.1:0", "--insecure-allow-all")
	direct := newWay(exchange.NewEndpoint("direct", cp.URL(), config))
	proxied := newWay(exchange.NewEndpoint("through Spillway", proxy.TLS, &rest.Config{
		Host: proxy.TLS, BearerToken: config.BearerToken, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}))
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for i := range *workers {
		w, err := newWorker(t.Context(), client, fmt.Sprintf("run-%d-%d", number, i), direct, proxied)
		if err != nil {
			t.Fatal(err)
		}
		r.workers = append(r.workers, w)
	}
	return r
}

// play starts so many watches, or until so many have lost something.
func (r *run) play(t *testing.T, starts []start, count, losses int) {
	t.Helper()
	var next atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	for _, w := range r.workers {
		group.Go(func() error {
			for i := next.Add(1) - 1; i < int64(count) && r.tally.losses() < losses; i = next.Add(1) - 1 {
				s := starts[i%int64(len(starts))]
				if err := r.start(ctx, w, s, fmt.Sprintf("start-%d", i)); err != nil {
					return fmt.Errorf("%s: %w", s, err)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// start starts a watch. One that is refused because upstream is busy is started again, and so is
// one that the API server itself ends, as it does with watches that it has no time for.
func (r *run) start(ctx context.Context, w *worker, s start, name string) error {
	const tries = 60
	for try := range tries {
		done, err := r.try(ctx, w, s, fmt.Sprintf("%s-%d", name, try))
		if done || err != nil {
			return err
		}
	}
	return fmt.Errorf("refused, or ended by the API server, %d times", tries)
}

// try starts a watch at both, writes once Spillway's head is there, and compares. It returns false
// if the watch was refused, or ended by the API server.
func (r *run) try(ctx context.Context, w *worker, s start, name string) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	target := s.target(w, name)
	direct, err := w.direct.open(ctx, s.format, target)
	if err != nil {
		return false, fmt.Errorf("directly: %w", err)
	}
	defer direct.cancel()
	began := time.Now()
	proxied, err := w.proxied.open(ctx, s.format, target)
	if err != nil {
		return false, r.refused(ctx, err)
	}
	defer proxied.cancel()
	headed := time.Now()
	story := &story{start: s, name: name, head: w.now(), objects: maps.Clone(w.objects), before: w.log}
	if story.script, err = w.script(ctx, name); err != nil {
		return false, fmt.Errorf("writing: %w", err)
	}
	told, err := direct.until(ctx, story.enough)
	if errors.Is(err, errEnded) || isBehind(told) {
		r.tally.ended.Add(1)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("directly: %w after%s", err, summary(told))
	}
	if wrong := story.judge(told, told); len(wrong) > 0 {
		return false, fmt.Errorf("directly came%s: %s", summary(told), strings.Join(wrong, "; "))
	}
	got, err := proxied.until(ctx, story.enough)
	r.tally.time(s, headed.Sub(began), proxied.first.Sub(began))
	// Of a WebSocket it is not seen which server answered. What Spillway decides is the same for all
	// formats, and of the others it is seen.
	passed := proxied.passed || s.webSocket && !r.answers.Prompt()
	if passed && (errors.Is(err, errEnded) || isBehind(got)) {
		r.tally.ended.Add(1)
		return false, nil
	}
	wrong := story.judge(got, told)
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	if len(wrong) > 0 {
		r.tally.lose(fmt.Sprintf("%s\n  directly%s\n  proxied %s\n  %s", s, summary(told), summary(got),
			strings.Join(wrong, "\n  ")))
		return true, nil
	}
	r.tally.add(proxied.passed)
	return true, nil
}

// isBehind reports that the API server ended a watch because its own watch cache was behind etcd
// for three seconds (W-107).
func isBehind(got []exchange.Event) bool {
	return slices.ContainsFunc(got, func(e exchange.Event) bool {
		return e.Type == "ERROR" && bytes.Contains(e.Line, []byte(`"reason":"ResourceVersionTooLarge"`))
	})
}

// refused waits as long as a refusal says that is to be followed by another request.
func (r *run) refused(ctx context.Context, err error) error {
	var refused *refusedError
	if !errors.As(err, &refused) || refused.status != http.StatusTooManyRequests {
		return err
	}
	r.tally.refused.Add(1)
	seconds, err := strconv.Atoi(refused.retryAfter)
	if err != nil {
		return fmt.Errorf("a refusal without Retry-After: %w", refused)
	}
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
