package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/test/demo/stage"
)

const (
	namespace = "default"
	podsPath  = "/api/v1/namespaces/" + namespace + "/pods"
	watchPath = podsPath + "?watch=1"
	clients   = 40
	changes   = 20       // in each round of the step with the slow client
	podBytes  = 32 << 10 // of each change; together they are more than the kernel keeps for a client
	downtime  = time.Second

	claimBudget  = 2 * time.Minute  // for a step, on a machine that is very busy
	settleBudget = 30 * time.Second // for short watches at the API server to end
)

// firstPods are there when the watches begin.
var firstPods = []string{"web-0", "web-1", "web-2"}

// show is what act one has started so far. Its methods run on the main goroutine.
type show struct {
	flags
	console *stage.Console
	dir     string // what the demo writes; removed by close

	budget, settle time.Duration // see claimBudget and settleBudget

	api      *fakeapiserver.Server
	proxy    *stage.Proxy
	watchers []*rawclient.Watcher
	slow     *rawclient.Watcher
	build    *build // nil without act two
}

// step shows one thing. An error says which claim is not true.
type step struct {
	name string
	do   func(context.Context) error
}

func (s *show) steps() []step {
	steps := []step{
		{"a mirror", s.mirror},
		{"many watches", s.watch},
		{"an event", s.event},
		{"a slow client", s.slowClient},
		{"a restart", s.restart},
		{"the status page", s.status},
	}
	for i, one := range steps {
		steps[i].do = func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, s.budget)
			defer cancel()
			return one.do(ctx)
		}
	}
	return steps
}

// say prints a line of the show behind its topic.
func (s *show) say(topic, format string, args ...any) {
	s.console.Line("%-9s %s", topic, fmt.Sprintf(format, args...))
}

// mirror starts both servers.
func (s *show) mirror(ctx context.Context) (err error) {
	s.api = fakeapiserver.New(fakeapiserver.Options{Writes: true})
	for _, name := range firstPods {
		s.api.Create(fakeapiserver.Pods, namespace, name)
	}
	kubeconfig := filepath.Join(s.dir, "upstream")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: made-for-tests, cluster: {server: %q}}]
contexts: [{name: made-for-tests, context: {cluster: made-for-tests}}]
current-context: made-for-tests
`, s.api.URL), 0o600); err != nil {
		return fmt.Errorf("cannot write a kubeconfig: %w", err)
	}
	started := time.Now()
	if s.proxy, err = stage.StartProxy(ctx, s.console, s.spillway, s.dir, kubeconfig, "pods"); err != nil {
		return err
	}
	if err := s.awaitUpstreamWatches(ctx, 1); err != nil {
		return err
	}
	s.say("mirror", "Spillway is ready after %.1f s, with the %d pods of the API server", time.Since(started).Seconds(),
		len(firstPods))
	return nil
}

// awaitUpstreamWatches waits until the API server serves exactly n watches of pods.
func (s *show) awaitUpstreamWatches(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, s.settle)
	defer cancel()
	open := func() int {
		count := s.api.OpenWatches(fakeapiserver.Pods)
		return count.Long + count.Proof
	}
	if err := s.api.Await(ctx, func() bool { return open() == n }); err != nil {
		return fmt.Errorf("the API server serves %d watches of pods instead of %d: %w", open(), n, context.Cause(ctx))
	}
	return nil
}

// watch opens the watches, each with a connection of its own.
func (s *show) watch(ctx context.Context) error {
	for range clients {
		s.watchers = append(s.watchers, rawclient.Watch(context.Background(), s.proxy.Server, watchPath)) // until close
	}
	if _, err := s.receive(ctx, added(firstPods...)...); err != nil {
		return err
	}
	s.say("watchers", "%d clients watch them, each like this:", clients)
	s.say("", "$ curl -sN '%s%s'", s.proxy.Server, watchPath)
	return s.awaitUpstreamWatches(ctx, 1)
}

// event creates a pod through Spillway, which all watchers must receive.
func (s *show) event(ctx context.Context) error {
	const body = `{"metadata":{"name":"hello"}}`
	s.say("event", "$ "+createCommand, s.proxy.Server, podsPath, body)
	sent := time.Now()
	if err := s.post(ctx, body); err != nil {
		return err
	}
	last, err := s.receive(ctx, added("hello")...)
	if err != nil {
		return err
	}
	if err := s.awaitUpstreamWatches(ctx, 1); err != nil {
		return err
	}
	s.say("watch │", "ADDED %s/hello", namespace)
	s.say("", "all %d clients have it, the last after %s. The API server serves 1 watch of pods", clients,
		milliseconds(last.Sub(sent)))
	return nil
}

// createCommand takes the server, the path and the body.
const createCommand = "curl -H Content-Type:application/json %s%s -d '%s'"

// post sends what createCommand sends.
func (s *show) post(ctx context.Context, body string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.proxy.Server+podsPath, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusCreated {
		err = errors.New("the pod was not created: " + string(answer))
	}
	return err
}

// slowClient changes pods while one client reads nothing, and compares with a round without it.
func (s *show) slowClient(ctx context.Context) error {
	s.slow = rawclient.Watch(context.Background(), s.proxy.Server, watchPath, rawclient.ReceiveBuffer(podBytes))
	if err := s.slowReceives(ctx, added("hello", "web-0", "web-1", "web-2")...); err != nil {
		return err
	}
	without, err := s.change(ctx)
	if err != nil {
		return err
	}
	if err := s.slowReceives(ctx, modified()...); err != nil {
		return err
	}
	s.slow.Stall()
	with, err := s.change(ctx)
	if err != nil {
		return fmt.Errorf("while one client does not read: %w", err)
	}
	if err := s.awaitSlowWatches(ctx, 1); err != nil {
		return err
	}
	read := s.slowHas()
	if read >= changes {
		return fmt.Errorf("the slow client has all %d changes, so it was not slow", read)
	}
	s.say("slow", "one more client stops reading, and pods of %d KiB change %d times. The %d others have every",
		podBytes>>10, changes, clients)
	s.say("", "change, and the slow client has %d. Median time to reach all others: %s (without it: %s)",
		read, milliseconds(with), milliseconds(without))
	s.slow.Resume()
	if err := s.slowReceives(ctx, modified()[read:]...); err != nil {
		return err
	}
	s.say("", "it reads again, and receives the other %d in order", changes-read)
	return nil
}

// change changes pods, one after another, and returns the median of the times from a write to its
// last receipt.
func (s *show) change(ctx context.Context) (time.Duration, error) {
	var delays []time.Duration
	for n, want := range modified() {
		sent := time.Now()
		s.api.Update(fakeapiserver.Pods, namespace, firstPods[n%len(firstPods)],
			fakeapiserver.WithPadding(podBytes), fakeapiserver.WithLabel("changed", strconv.FormatInt(sent.UnixNano(), 10)))
		last, err := s.receive(ctx, want)
		if err != nil {
			return 0, err
		}
		delays = append(delays, last.Sub(sent))
	}
	slices.Sort(delays)
	return delays[len(delays)/2], nil
}

// restart takes the API server down, with its watch history, and lets it miss a pod.
func (s *show) restart(ctx context.Context) error {
	before := len(s.api.Requests())
	s.api.Down()
	s.api.Create(fakeapiserver.Pods, namespace, "created-while-down")
	select {
	case <-time.After(downtime):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.api.Restart()
	if err := s.api.Up(); err != nil {
		return err
	}
	up := time.Now()
	s.say("restart", "the API server is down for %.0f s, and has no watch history afterwards. A pod was created meanwhile",
		downtime.Seconds())
	last, err := s.receive(ctx, added("created-while-down")...)
	if err != nil {
		return err
	}
	if err := s.awaitUpstreamWatches(ctx, 1); err != nil {
		return err
	}
	if lists := listsOfPods(s.api.Requests()[before:]); lists != 1 {
		return fmt.Errorf("the API server sent all pods %d times instead of once", lists)
	}
	s.say("watch │", "ADDED %s/created-while-down", namespace)
	s.say("", "all %d clients have it %.1f s after the restart, on the connections that they had. The API server", clients,
		last.Sub(up).Seconds())
	s.say("", "sends its list of pods once, to Spillway. No client lists again")
	return nil
}

// listsOfPods counts the requests that are answered with all pods: LISTs and watch-lists, but no
// LIST of a single object, with which Spillway finds out how far the API server is.
func listsOfPods(requests []fakeapiserver.Request) (n int) {
	for _, r := range requests {
		isList := r.Verb == "list" && r.Query.Get("limit") != "1"
		isWatchList := r.Verb == "watch" && r.Query.Get("sendInitialEvents") == "true"
		if r.GVR == fakeapiserver.Pods && (isList || isWatchList) {
			n++
		}
	}
	return n
}

// status shows where the watches can be seen.
func (s *show) status(ctx context.Context) error {
	page := s.proxy.Metrics + "/statusz"
	text, err := stage.Fetch(ctx, page)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	if !strings.Contains(text, "pods") {
		return fmt.Errorf("%s does not show the mirror of pods", page)
	}
	s.say("status", "%s shows the mirror and every watch", page)
	return nil
}

var slowWatches = regexp.MustCompile(`(?m)^spillway_slow_client_watches (\S+)$`)

// awaitSlowWatches waits until Spillway counts n watches whose clients are slow.
func (s *show) awaitSlowWatches(ctx context.Context, n int) error {
	want := strconv.Itoa(n)
	for {
		text, err := stage.Fetch(ctx, s.proxy.Metrics+"/metrics")
		if err != nil {
			return fmt.Errorf("the metrics of Spillway: %w", err)
		}
		sample := slowWatches.FindStringSubmatch(text)
		if sample == nil {
			return errors.New("the metrics do not count slow clients")
		}
		if sample[1] == want {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the metrics count %s slow clients instead of %d: %w", sample[1], n, context.Cause(ctx))
		}
	}
}

// close ends what runs and removes what was made, in the opposite order.
func (s *show) close() error {
	if s.build != nil {
		s.build.stop()
	}
	for _, w := range append(s.watchers, s.slow) {
		if w != nil {
			w.Close()
		}
	}
	if s.proxy != nil {
		s.proxy.Stop()
	}
	if s.api != nil {
		s.api.Close()
	}
	if s.dir == "" {
		return nil
	}
	err := os.RemoveAll(s.dir)
	if err == nil {
		s.console.Line("act one has ended, and nothing is left behind")
	}
	return err
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
