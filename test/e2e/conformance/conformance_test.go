package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
	"spillway/test/framework/relay"
)

// full adds the cases that take minutes.
var full = flag.Bool("full", false, "also run the cases that take minutes")

// report takes what a run has shown, which go test prints with -v only.
var report = flag.String("report", "", "write what the run has shown to this `folder`: coverage.md and cases.tsv")

// late is how late the API server answers the proxies' own questions.
var late relay.Answers

func init() {
	flag.Var(&late, "late", "how late the API server answers the proxies' own questions: a time, random or never")
}

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(runChild(os.Stderr))
	}
	flag.Parse()
	// Requests wait, above all, so their number is not a matter of processors. A suite bounds them
	// itself.
	if err := flag.Set("test.parallel", "256"); err != nil {
		panic(err) // the flag exists
	}
	os.Exit(m.Run())
}

// pace is how long a group waits for what cannot be hastened, and with that when it runs.
type pace int

const (
	quick   pace = iota // always
	slow                // but with -short
	slowest             // with -full only
)

// suite is a world and what has been found out about it.
type suite struct {
	*world
	tally *exchange.Tally
	slots chan struct{} // bounds how many requests are under way

	combinations string // what came of the matrices
}

// TestConformance sends all requests. The groups follow each other, because some of them write.
func TestConformance(t *testing.T) {
	s := &suite{world: newWorld(t), tally: exchange.NewTally(), slots: make(chan struct{}, 128)}
	for _, group := range []struct {
		name string
		run  func(*testing.T)
		pace pace
	}{
		{name: "requests", run: s.testRequests},
		{name: "watches", run: s.testWatches},
		{name: "matrix", run: s.testMatrix},
		{name: "planner", run: s.testPlanner},
		{name: "paging", run: s.testPaging},
		{name: "transport", run: s.testTransport},
		{name: "live", run: s.testLive},
		{name: "informers", run: s.testInformers},
		{name: "manager", run: s.testManager},
		{name: "kubectl", run: s.testKubectl},
		{name: "kubelet", run: s.testKubelet},
		{name: "fields", run: s.testFields},
		{name: "apart", run: s.testApart, pace: slow},
		{name: "delegation", run: s.testDelegation, pace: slow},
		{name: "late snapshot", run: s.testLateSnapshot},
		{name: "bookmarks", run: s.testBookmarkPeriod, pace: slowest},
		{name: "without etcd", run: s.testWithoutEtcd, pace: slow},
		{name: "informers through a crash", run: s.testInformersThroughCrash, pace: slowest},
		{name: "kinds", run: s.testKinds},
		{name: "restart", run: s.testRestart},
		{name: "definition", run: s.testDefinition},
	} {
		if group.pace == slowest && !*full || group.pace == slow && testing.Short() {
			continue
		}
		if !t.Run(group.name, group.run) && t.Context().Err() != nil {
			return
		}
	}
	s.finish(t, !testing.Short() && flag.Lookup("test.run").Value.String() == "" &&
		flag.Lookup("test.skip").Value.String() == "")
}

// testApart runs at the same time the groups whose proxies and resources are their own.
func (s *suite) testApart(t *testing.T) {
	for name, run := range map[string]func(*testing.T){
		"versions": s.testVersions, "definitions": s.testDefinitions, "conversions": s.testConversions} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}

// The source of an answer.
const (
	upstream = exchange.Upstream
	memory   = exchange.Memory  // or a refusal that took no request upstream
	either   = exchange.Various // whichever is faster at the moment
)

// scenario is one request and what must be true of both answers.
type scenario struct {
	name  string
	rules string // those it covers, separated by blanks
	request
	status  int // of both answers; 200 if 0
	from    exchange.Source
	clocked bool // the answer contains the time
}

// anyStatus is for requests whose outcome is not known beforehand.
const anyStatus = -1

// run sends a request both ways at once, and compares. Targets may hold ${marks}.
func (s *suite) run(t *testing.T, proxied *endpoint, c scenario) {
	t.Helper()
	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	result := s.ask(t, proxied, c)
	target := result.Request.Method + " " + result.Request.Target
	for _, problem := range result.Problems {
		t.Errorf("%s\n%s", target, problem)
	}
	want := c.status
	if want == 0 {
		want = http.StatusOK
	}
	newest := s.skew == nil // what follows is of the newest API server
	if newest && result.Direct.Status != want && want != anyStatus {
		t.Errorf("%s: the API server answers %d, want %d: %s", target, result.Direct.Status, want,
			exchange.Clip(result.Direct.Body))
	}
	if by := result.By(); newest && late.Prompt() && c.from != either && (by == upstream) != (c.from == upstream) {
		t.Errorf("%s: %v", target, by)
	}
	s.tally.Note(exchange.Case{
		Test: t.Name(), Rules: strings.Fields(c.rules), By: result.By(), Equal: !t.Failed(), Direct: result.Direct.Status,
		Proxied: result.Proxied.Status, Deviation: result.Deviation,
	})
}

// show notes a case that is more than one answer and whose test is about to end: it was shown
// unless that has failed.
func (s *suite) show(t *testing.T, rules string, by exchange.Source) {
	t.Helper()
	s.tally.Note(exchange.Case{Test: t.Name(), Rules: strings.Fields(rules), By: by, Equal: !t.Failed()})
}

// ask sends a request both ways; again until the answers are equal, if they contain the time.
func (s *suite) ask(t *testing.T, proxied *endpoint, c scenario) *exchange.Comparison {
	t.Helper()
	r := c.request
	r.Target = s.fill(r.Target)
	r.Header = maps.Clone(r.Header)
	for key, value := range r.Header {
		r.Header[key] = s.fill(value)
	}
	attempts := 1
	if c.clocked {
		attempts = 50
		s.tally.Deviated(exchange.NormClocked)
	}
	var result *exchange.Comparison
	for range attempts {
		if result = s.inTime(t, proxied, r); result == nil {
			t.FailNow()
		}
		if result.OtherFormat && result.Deviation == "" {
			s.compareInJSON(t, proxied, result)
		}
		if result.FromMemory {
			proxied.memory.Add(1)
		}
		if len(result.Problems) == 0 {
			break
		}
	}
	return result
}

// patient bounds how often a watch is repeated in which one of the two ran out of time.
const patient = 20

// inTime sends a request both ways, and again if one of the two ran out of time. It is nil if one
// did not answer at all.
func (s *suite) inTime(t *testing.T, proxied *endpoint, r request) *exchange.Comparison {
	t.Helper()
	for attempt := 1; ; attempt++ {
		direct, answered := s.both(t, proxied, r, process.Patience)
		if direct == nil {
			return nil
		}
		result := exchange.Compare(s.tally, r, direct, answered)
		if err := s.skew.Explain(t.Context(), result); err != nil {
			t.Error(err)
			return nil
		}
		if !result.OutOfTime() {
			return result
		}
		if attempt == patient || attempt == patientIfLate && !late.Prompt() {
			return excused(result)
		}
		s.tally.Deviated(exchange.NormClocked)
	}
}

// patientIfLate is patient where answers are late: a short watch may never have the time.
const patientIfLate = 3

// excused is the result of a watch that ran out of time again and again. Where answers are late, it
// has shown what it had: nothing else is wrong with it.
func excused(result *exchange.Comparison) *exchange.Comparison {
	if !late.Prompt() {
		result.Problems = nil
	}
	return result
}

// both sends the API server and the proxy the same at the same time, in the same protocol.
func (s *suite) both(t *testing.T, proxied *endpoint, r request, within time.Duration) (direct, answered *answer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	straight := s.straight(proxied)
	failed := make(chan error, 1)
	go func() {
		var err error
		direct, err = straight.Do(ctx, r)
		failed <- err
	}()
	answered, err := proxied.Do(ctx, r)
	if directly := <-failed; err != nil || directly != nil {
		t.Errorf("%s %s: direct %v, proxied %v", r.Method, r.Target, directly, err)
		return nil, nil
	}
	return direct, answered
}

// straight is the way to the API server in the protocol of a way through the proxy.
func (s *suite) straight(proxied *endpoint) *endpoint {
	if proxied == s.secure2 {
		return s.direct2
	}
	return s.direct
}

// compareInJSON compares an answer that was given in JSON instead of protobuf with the API server's
// in JSON.
func (s *suite) compareInJSON(t *testing.T, proxied *endpoint, result *exchange.Comparison) {
	t.Helper()
	r := result.Request
	r.Header = maps.Clone(r.Header)
	r.Header["Accept"] = "application/json"
	direct, err := s.straight(proxied).Do(t.Context(), r)
	if err != nil {
		t.Error(err)
		return
	}
	again := exchange.Compare(s.tally, r, direct, result.Proxied)
	result.Problems = append(result.Problems, again.Problems...)
}

// runAll runs scenarios at the same time, each as a subtest.
func (s *suite) runAll(t *testing.T, proxied *endpoint, scenarios []scenario) {
	t.Helper()
	for _, c := range scenarios {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s.run(t, proxied, c)
		})
	}
}

// decodeJSON decodes, or says what it got.
func decodeJSON(body []byte, into any) error {
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(into); err != nil {
		return fmt.Errorf("%w in %s", err, exchange.Clip(body))
	}
	return nil
}

// get is a scenario of a plain GET.
func get(name, rules, target string, from exchange.Source, status int) scenario {
	return scenario{name: name, rules: rules, request: request{Target: target}, from: from, status: status}
}

// with adds headers, given as pairs.
func (c scenario) with(pairs ...string) scenario {
	header := map[string]string{}
	for key, value := range c.Header {
		header[key] = value
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		header[pairs[i]] = pairs[i+1]
	}
	c.Header = header
	return c
}

// by changes the method.
func (c scenario) by(method string) scenario {
	c.Method = method
	return c
}

// over is a group of scenarios under one name.
func over(name string, groups ...[]scenario) []scenario {
	var all []scenario
	for _, group := range groups {
		for _, c := range group {
			c.name = strings.TrimSuffix(name+"/"+c.name, "/")
			all = append(all, c)
		}
	}
	return all
}
