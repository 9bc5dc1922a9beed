package largeheaders

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"spillway/test/framework/process"
)

// perConnection is what a connection without credentials may make the process hold, in bytes.
const perConnection = 64 << 10

// Without any connection of the attack, what is resident differs by leastNoise from round to round
// at least, by pages of which a part is in use; and what is in use by up to drift, over any number
// of rounds, by goroutines that wait for a while for more work. A connection that left 10 kB behind
// would be more.
const (
	leastNoise = 512 << 10
	drift      = 2 << 20
)

// reviewed is by when upstream has reviewed credentials, on a busy machine.
const reviewed = 30 * time.Second

// rounds is how often each measurement is made. The median counts.
const (
	rounds    = 5
	fewRounds = 3 // of many connections
)

// budgets are the memory budgets of the proxies. With all but the first only many connections are
// measured.
var budgets = []string{"1Ti", "256Mi"}

// joined are the attacks that are tried, by many connections and with the first budget, where time
// is short.
var joined = []string{
	"cookie", "cookie, over HTTP/1.1", "cookie, with a token of nobody's", "x-forwarded-for", "sec-websocket-protocol",
	"a query of many parameters", "many small fields, over HTTP/1.1", "ordinary heads",
}

// held is what the process has, in bytes: what is in use after a collection, heap and stacks; what
// is resident then, with free memory given back to the system; and what was resident before.
type held struct{ used, resident, raw int64 }

func (h held) less(other held) held {
	return held{h.used - other.used, h.resident - other.resident, h.raw - other.raw}
}

// buildMeasured builds a proxy that measures itself, see testdata/measure.go.txt.
func buildMeasured(t *testing.T) string {
	t.Helper()
	source, err := filepath.Abs("testdata/measure.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{filepath.Join(process.Repository(t), "cmd", "proxy", "measure.go"): source}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return process.BuildProxy(t, "-overlay="+file)
}

// held requests the figures of the process, while no client that means well has a request open.
func (w *world) held() (now held) {
	w.Helper()
	w.still.Lock()
	defer w.still.Unlock()
	c, err := net.Dial("unix", w.measures)
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fscan(c, &now.raw, &now.used, &now.resident); err != nil {
		w.Fatal(err)
	}
	return now
}

// profile writes a profile of the memory in use to a file.
func (w *world) profile(file string) {
	response, err := http.Get(w.proxy.Metrics + "/debug/pprof/heap?gc=1")
	if err != nil {
		w.Fatal(err)
	}
	defer response.Body.Close()
	profile, err := io.ReadAll(response.Body)
	if err == nil {
		err = os.WriteFile(file, profile, 0o600)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// quiet waits until no more than so many connections of HTTP/2 are open beside those of clients
// that mean well, and their requests have been answered.
func (w *world) quiet(connections int) {
	w.Helper()
	limits := map[string]int{
		"spillway_http2_connections":                               connections + 1,
		`spillway_flowcontrol_in_use{limit="passthrough_requests"`: 0,
		`spillway_flowcontrol_in_use{limit="header_bytes"`:         0,
	}
	inARow := 0 // one request may have ended when the next one is yet to begin
	what := fmt.Sprintf("%d connections, and nothing under way", connections)
	process.Awaiting(w.T, what, func(ctx context.Context) error {
		for name, limit := range limits {
			n, err := process.ReadMetric(ctx, w.proxy.Metrics, name)
			if err != nil || n > limit {
				inARow = 0
				return fmt.Errorf("%s is %d, %v", name, n, err)
			}
		}
		if inARow++; inARow < 3 {
			return fmt.Errorf("%d times in a row", inARow)
		}
		return nil
	})
}

// outcome is what a measurement has found, in the middle of its rounds.
type outcome struct {
	held
	sent   int64
	open   int    // connections that the proxy had not ended
	before []held // without a connection of the attack, before each round and after the last
}

// measure has connections attack round by round, and compares what the process holds with what it
// held before.
func (w *world) measure(h head, connections, rounds int) outcome {
	w.Helper()
	var o outcome
	var all []held
	var frames []byte
	if h.raw == nil && !h.old {
		frames = h.frames()
	}
	sample := func(name string) held {
		now := w.held()
		if dir := os.Getenv("HEADS_PROFILES"); dir != "" {
			w.profile(filepath.Join(dir, fmt.Sprintf("heap-%d-%s", connections, name)))
		}
		return now
	}
	for range rounds {
		none := sample("none")
		o.before = append(o.before, none)
		attackers := make([]*attacker, connections)
		var asking sync.WaitGroup
		for i := range attackers {
			attackers[i] = connect(w.T, w.proxy, h.old)
		}
		for _, a := range attackers {
			asking.Go(func() { a.ask(h, frames) })
		}
		asking.Wait()
		w.quiet(connections)
		now := sample("attack").less(none)
		// Requests whose credentials are under review upstream, which no metric counts, have yet to be
		// answered.
		for deadline := time.Now().Add(reviewed); now.used > int64(connections)*perConnection; {
			if time.Now().After(deadline) {
				break
			}
			time.Sleep(reviewed / 100)
			now = sample("attack").less(none)
		}
		all = append(all, now)
		o.sent, o.open = 0, 0
		for _, a := range attackers {
			o.sent += a.sent
			if a.open() {
				o.open++
			}
			a.close()
		}
		w.quiet(0)
	}
	o.before = append(o.before, sample("none"))
	o.used = median(all, func(h held) int64 { return h.used })
	o.raw = median(all, func(h held) int64 { return h.raw })
	o.resident = median(all, func(h held) int64 { return h.resident })
	return o
}

func median(all []held, of func(held) int64) int64 {
	values := make([]int64, len(all))
	for i, h := range all {
		values[i] = of(h)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// TestFewBytesHoldLittle: connections without credentials open all the streams that they may, with
// heads that are a megabyte once they are decoded, and take nothing of the answers. What the
// process holds for each of them is bounded, and a client that means well is served. The process
// has been through the same attack before: what it grows by once, for all connections, is no
// connection's (attack).
func TestFewBytesHoldLittle(t *testing.T) {
	binary := buildMeasured(t)
	for _, budget := range budgets {
		t.Run("with a budget of "+budget, func(t *testing.T) {
			if testing.Short() && budget != budgets[0] {
				t.Skip("takes minutes")
			}
			w := newWorld(t, binary, "--memory-budget="+budget)
			good := w.follow()
			for _, name := range slices.Sorted(maps.Keys(attacks)) {
				if testing.Short() && !slices.Contains(joined, name) {
					continue
				}
				t.Run(name, func(t *testing.T) { w.in(t).attack(name, budget) })
			}
			good()
			if most := w.proxy.MostResident(t); budget == "256Mi" && most > 256<<20 {
				t.Errorf("it took %d MiB", most>>20)
			}
		})
	}
}

// in is the same world for a part of a test.
func (w *world) in(t *testing.T) *world {
	part := *w
	part.T = t
	return &part
}

// attack measures an attack by few and by many connections. After one by many has warmed the
// process, a connection holds no more than perConnection, in use and resident, and rounds leave
// nothing behind.
func (w *world) attack(name, budget string) {
	h := attacks[name]
	w.measure(h, 64, 1)
	protocol := "HTTP/2"
	if h.old {
		protocol = "HTTP/1.1"
	}
	for _, connections := range []int{2, 8, 64} {
		times := rounds
		switch {
		case connections == 64:
			times = fewRounds
		case testing.Short() || budget != budgets[0]:
			continue
		}
		o := w.measure(h, connections, times)
		each := func(n int64) float64 { return float64(n) / float64(connections) / 1024 }
		noise, left := o.noise(), o.before[len(o.before)-1].less(o.before[0]).used
		w.Logf("| %s | %s | %d, %d open | %s | %d kB sent | in use %.1f kB each | resident %.1f kB each "+
			"| before free memory is given back %.1f | noise %d kB | left behind %d kB |",
			name, protocol, connections, o.open, budget, o.sent>>10, each(o.used), each(o.resident), each(o.raw), noise>>10,
			left>>10)
		most := int64(connections) * perConnection
		if o.used > most {
			w.Errorf("%d connections have %d kB in use", connections, o.used>>10)
		}
		most += noise
		if o.resident > most {
			w.Errorf("%d connections: %d kB more are resident, with noise of %d kB", connections, o.resident>>10, noise>>10)
		}
		if left > drift {
			w.Errorf("%d connections: %d rounds left %d kB in use behind", connections, times, left>>10)
		}
	}
}

// noise is the largest difference of what is resident between two rounds while no connection of
// the attack is there.
func (o outcome) noise() int64 {
	most := int64(leastNoise)
	for i := range o.before[1:] {
		step := o.before[i+1].less(o.before[i]).resident
		most = max(most, step, -step)
	}
	return most
}
