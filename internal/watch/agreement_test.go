package watch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// receivedStream is what a client received, and how its watch ended.
type receivedStream struct {
	events []string // without bookmarks: their moments differ
	reason EndReason
}

// script is a random sequence of events in a world: writes, and clients that watch, read slowly,
// pause, leave or are drained.
type script struct {
	t       *testing.T
	rand    *rand.Rand
	world   *world
	version int
	pods    map[string]int // by name, the version
	peers   []*testClient
}

// play runs some steps, and returns what each client received.
func (s *script) play(steps int) []receivedStream {
	for range steps {
		s.step()
	}
	for _, p := range s.peers {
		p.resume()
	}
	time.Sleep(2 * time.Hour) // longer than any watch lasts
	var all []receivedStream
	for _, p := range s.peers {
		all = append(all, s.toldTo(p))
	}
	return all
}

func (s *script) step() {
	switch n := s.rand.IntN(100); {
	case n < 40:
		s.write()
	case n < 55:
		s.watch()
	case n < 60:
		s.version += 5
		s.world.resource().Progress(uint64(s.version), s.world.resource().Generation())
	case n < 63:
		s.relist()
	case n < 80:
		time.Sleep(time.Duration(s.rand.IntN(20_000)) * time.Millisecond)
	case len(s.peers) > 0:
		s.disturb(s.peers[s.rand.IntN(len(s.peers))])
	}
	synctest.Wait()
}

func (s *script) write() {
	name := fmt.Sprintf("a/p%d", s.rand.IntN(6))
	s.version++
	size := s.rand.IntN(300)
	if s.rand.IntN(10) == 0 {
		size = s.rand.IntN(200_000) // more than a turn
	}
	pod := fmt.Sprintf("%s %d app=%c pad=%s", name, s.version, 'x'+rune(s.rand.IntN(2)), strings.Repeat("p", size))
	if _, exists := s.pods[name]; exists && s.rand.IntN(4) == 0 {
		delete(s.pods, name)
		s.world.remove(pod)
		return
	}
	s.pods[name] = s.version
	s.world.set(pod)
}

// relist closes a gap in which some went and the rest stayed as it was.
func (s *script) relist() {
	s.version += 10
	var left []string
	for i := range 6 {
		name := fmt.Sprintf("a/p%d", i)
		if _, exists := s.pods[name]; !exists {
			continue
		}
		if s.rand.IntN(3) == 0 {
			delete(s.pods, name)
			continue
		}
		s.pods[name] = s.version - i
		left = append(left, fmt.Sprintf("%s %d app=x", name, s.version-i))
	}
	s.world.relist(uint64(s.version), left...)
}

func (s *script) watch() {
	query := []string{
		"watch=1&resourceVersion=0&allowWatchBookmarks=1", "watch=1&resourceVersion=0",
		fmt.Sprintf("watch=1&resourceVersion=%d", s.version),
		fmt.Sprintf("watch=1&resourceVersion=%d&allowWatchBookmarks=1", max(100, s.version-s.rand.IntN(20))),
	}[s.rand.IntN(4)]
	if s.rand.IntN(2) == 0 {
		query += "&labelSelector=app%3Dx"
	}
	if s.rand.IntN(3) == 0 {
		query += fmt.Sprintf("&timeoutSeconds=%d", 1+s.rand.IntN(200))
	}
	s.peers = append(s.peers, s.world.watch("/api/v1/pods?"+query))
}

func (s *script) disturb(p *testClient) {
	switch s.rand.IntN(8) {
	case 0, 1:
		p.pause()
	case 2, 3, 4:
		p.resume()
	case 5:
		p.slowly(time.Duration(s.rand.IntN(100)) * time.Millisecond)
	case 6:
		p.stream.Stop(EndDrain)
	case 7:
		if s.rand.IntN(3) == 0 {
			p.stream.Stop(EndClientClosed)
		}
	}
}

func (s *script) toldTo(p *testClient) receivedStream {
	_, events, _ := p.received()
	var out receivedStream
	last := 0
	for _, e := range events {
		words := strings.Fields(e)
		var rv int
		if _, err := fmt.Sscan(words[len(words)-1], &rv); err == nil && words[0] != "ERROR" {
			if rv < last && words[0] == "BOOKMARK" {
				s.t.Errorf("%q after %d", e, last)
			}
			last = max(last, rv)
		}
		if words[0] != "BOOKMARK" {
			out.events = append(out.events, e)
		}
	}
	select {
	case out.reason = <-p.reason:
	default:
		s.t.Error("a watch has not ended")
	}
	return out
}

// TestDeliverersAgree shows that with each deliverer each client receives the same events in the
// same order, and ends for the same reason. How much a client receives that has left may differ,
// because a goroutine notices that only after its write. So may how far a client is that is drained
// while it is behind: it resumes. (A cursor passes the end of a seam that is no event to its client
// with the last event of the seam if it reads the log, and with the next event if it reads a feed.
// Until then the watch is not drained.)
func TestDeliverersAgree(t *testing.T) {
	var written, stalled int
	for seed := range uint64(30) {
		results := map[string][]receivedStream{}
		for name, d := range deliveries {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, d)
				s := &script{t: t, rand: rand.New(rand.NewPCG(seed, 1)), world: w, version: 100,
					pods: map[string]int{}} //nolint:gosec // a story, no secret
				results[name] = s.play(120)
			})
		}
		want := results["goroutines"]
		for i, got := range results["writers"] {
			written += len(got.events)
			if got.reason == EndSlowClientStalled {
				stalled++
			}
			if got.reason == EndClientClosed && (want[i].reason == EndClientClosed || want[i].reason == EndSlowClientStalled) {
				continue
			}
			if got.reason != want[i].reason || !sameStory(got, want[i]) {
				t.Fatalf("seed %d, client %d:\nwriters    %s %q\ngoroutines %s %q", seed, i, got.reason, got.events, want[i].reason,
					want[i].events)
			}
		}
	}
	if written < 1000 || stalled == 0 {
		t.Errorf("the stories had %d events and %d stalled clients: they test less than they say", written, stalled)
	}
}

// sameStory compares what two clients received. A drained client may have received less.
func sameStory(a, b receivedStream) bool {
	if a.reason == EndDrain {
		n := min(len(a.events), len(b.events))
		return slices.Equal(a.events[:n], b.events[:n])
	}
	return slices.Equal(a.events, b.events)
}
