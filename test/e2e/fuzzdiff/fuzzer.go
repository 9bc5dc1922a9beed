package fuzzdiff

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"spillway/test/framework/exchange"
)

// Route is a way through Spillway, and the way around it that it is held against.
type Route struct {
	Direct, Proxied *exchange.Endpoint
	// Trusting: this way does not authenticate, so credentials are left out.
	Trusting bool
}

// Fuzzer sends an API server and the proxies in front of it the same. Its counts may be read at any
// time.
type Fuzzer struct {
	Ways    []Route // each request goes one of them
	Workers int     // requests at a time; most of the time they wait
	Seed    uint64
	Tally   *exchange.Tally
	Skew    *exchange.Skew // where the API server is not the newest

	Asked   atomic.Int64
	Memory  atomic.Int64 // answered from memory
	Refused atomic.Int64 // refused by the proxy itself
	Watches atomic.Int64 // requests for events
	Errors  atomic.Int64 // the answer is an error, of either server
}

// Finding is a request whose answers differ, and what remains of it when everything is left out
// that does not matter.
type Finding struct {
	Seed, Number  uint64
	Way           Route
	Found, Shrunk ask
	Problems      []string // of the shrunk request
	Tries, Seen   int      // how often the shrunk request was sent in the end, and how often the answers differed
}

const (
	patience   = 30 * time.Second // with one answer
	clockTries = 12               // of answers that are a matter of the moment, or of which one came short
	shrinkTime = 30 * time.Second // for one finding
)

// Round sends the requests with the numbers from first up to last, as long as ctx lasts, and
// returns what it found, of which the first few are shrunk. There must be no writes meanwhile.
func (f *Fuzzer) Round(ctx context.Context, state *State, first, last uint64) []Finding {
	found := f.each(ctx, first, last, func(number uint64) *Finding { return f.try(ctx, state, number) })
	for i := range min(len(found), shrunkAtMost) {
		f.shrink(ctx, &found[i])
	}
	return found
}

// each tries the numbers from first up to last, until ctx ends, and returns what it found.
func (f *Fuzzer) each(ctx context.Context, first, last uint64, try func(number uint64) *Finding) []Finding {
	var (
		next  atomic.Uint64
		mu    sync.Mutex
		found []Finding
		group sync.WaitGroup
	)
	next.Store(first)
	for range f.Workers {
		group.Go(func() {
			for number := next.Add(1) - 1; number < last && ctx.Err() == nil; number = next.Add(1) - 1 {
				if finding := try(number); finding != nil {
					mu.Lock()
					found = append(found, *finding)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	slices.SortFunc(found, func(a, b Finding) int { return int(a.Number) - int(b.Number) })
	return found
}

// shrunkAtMost bounds how many findings of a round are shrunk: many have one cause.
const shrunkAtMost = 8

// try makes a request, sends it, and returns what the answers differ in.
func (f *Fuzzer) try(ctx context.Context, state *State, number uint64) *Finding {
	a, way := f.generate(state, number)
	c := f.compare(ctx, way, a)
	if ctx.Err() != nil {
		return nil
	}
	f.count(a, c)
	if len(c.Problems) == 0 {
		return nil
	}
	return &Finding{Seed: f.Seed, Number: number, Way: way, Found: a, Shrunk: a, Problems: c.Problems, Tries: 1, Seen: 1}
}

// generate makes the request of a number, and chooses its way.
func (f *Fuzzer) generate(state *State, number uint64) (ask, Route) {
	a, way := generate(f.Seed, number, state), f.Ways[number%uint64(len(f.Ways))]
	if way.Trusting {
		a.header = without(a.header, "Authorization")
	}
	return a, way
}

func without(header []field, name string) []field {
	return slices.DeleteFunc(header, func(f field) bool { return f.name == name })
}

func (f *Fuzzer) count(a ask, c *exchange.Comparison) {
	f.Asked.Add(1)
	if a.watches() {
		f.Watches.Add(1)
	}
	failed := c.Direct != nil && c.Direct.Status >= 400
	if failed {
		f.Errors.Add(1)
	}
	switch {
	case c.FromMemory && failed && !ofState(c.Direct.Status):
		f.Refused.Add(1)
	case c.FromMemory:
		f.Memory.Add(1)
	}
}

// ofState recognises the errors that depend on the state or its history: that an object is not
// there, or that a version is no longer.
func ofState(status int) bool { return status == http.StatusNotFound || status == http.StatusGone }

// Share is how much was answered from memory, in percent of all requests, including those that
// either server must refuse.
func (f *Fuzzer) Share() float64 {
	return 100 * float64(f.Memory.Load()) / float64(max(1, f.Asked.Load()))
}

// String says what was requested, and which server answered.
func (f *Fuzzer) String() string {
	asked, memory, refused := f.Asked.Load(), f.Memory.Load(), f.Refused.Load()
	return fmt.Sprintf("%d requests (%d for events; %d answered with an error): %d from memory, %d refused by the proxy "+
		"itself, %d passed through: %.1f %% from memory",
		asked, f.Watches.Load(), f.Errors.Load(), memory, refused, asked-memory-refused, f.Share())
}

// compare sends the request to both at once. If the answers depend on the moment, it is repeated
// until they are equal (N-5), and so is a short watch in which one of the two ran out of time.
func (f *Fuzzer) compare(ctx context.Context, way Route, a ask) *exchange.Comparison {
	for tries := 1; ; tries++ {
		c := f.compareOnce(ctx, way, a)
		if len(c.Problems) == 0 || !a.momentary() && !c.OutOfTime() || tries == clockTries || ctx.Err() != nil {
			return c
		}
	}
}

func (f *Fuzzer) compareOnce(ctx context.Context, way Route, a ask) *exchange.Comparison {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := a.request()
	var (
		direct  *exchange.Answer
		failure error
		group   sync.WaitGroup
	)
	group.Go(func() { direct, failure = way.Direct.Do(ctx, r) })
	answered, err := way.Proxied.Do(ctx, r)
	group.Wait()
	switch {
	case failure != nil && err != nil: // neither has an answer to this
		return &exchange.Comparison{Request: r}
	case failure != nil || err != nil:
		return &exchange.Comparison{Request: r, Direct: direct,
			Problems: []string{fmt.Sprintf("no answer: direct %v, proxied %v", failure, err)}}
	}
	c := exchange.Compare(f.Tally, r, direct, answered)
	if err := f.Skew.Explain(ctx, c); err != nil {
		c.Problems = append(c.Problems, err.Error())
	}
	if c.OtherFormat && c.Deviation == "" {
		f.compareInJSON(ctx, way, c)
	}
	return c
}

// compareInJSON compares an answer that was given in JSON instead of protobuf with the API server's
// in JSON.
func (f *Fuzzer) compareInJSON(ctx context.Context, way Route, c *exchange.Comparison) {
	r := c.Request
	r.Header = map[string]string{}
	for name, value := range c.Request.Header {
		r.Header[name] = value
	}
	r.Header["Accept"] = asJSON
	direct, err := way.Direct.Do(ctx, r)
	if err != nil {
		c.Problems = append(c.Problems, "no answer in JSON: "+err.Error())
		return
	}
	c.Problems = append(c.Problems, exchange.Compare(f.Tally, r, direct, c.Proxied).Problems...)
}

// String says how to have the finding again.
func (f Finding) String() string {
	return fmt.Sprintf("seed %d, request %d, through %s: the answers differ, %d of %d times\n%s\nfound in\n%s\nshrunk "+
		"to\n%s\ndirectly\n%s",
		f.Seed, f.Number, f.Way.Proxied.Name, f.Seen, f.Tries, strings.Join(f.Problems, "\n"),
		f.Found.curl(f.Way.Proxied.Base, f.Way.Proxied.Config.BearerToken),
		f.Shrunk.curl(f.Way.Proxied.Base, f.Way.Proxied.Config.BearerToken),
		f.Shrunk.curl(f.Way.Direct.Base, f.Way.Direct.Config.BearerToken))
}
