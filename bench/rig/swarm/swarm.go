// Package swarm is many watch clients that cost next to nothing, so that what is measured is the
// server: on HTTP/1.1 one epoll and one thread read all connections, nothing is parsed but a stamp
// that each object bears, and nothing is allocated per event. Invariant: each stamp that arrives is
// counted once, with its delay.
package swarm

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/wire"
)

// Options say what a swarm watches.
type Options struct {
	Server  rig.Server
	Accept  string   // "" is JSON
	Targets []string // the request URI of each watch
	PerConn int      // watches on each connection, by HTTP/2; 0 is HTTP/1.1, where each has its own
	Tokens  []string // what each connection shows, its own; nil: all of them the server's
	AtOnce  int      // connections that are opened at a time; 0 is 16
	// how often each connection of HTTP/2 is tried, as a server that has too much to do sends clients
	// away; 0 is once
	Tries int

	// Every makes a swarm on HTTP/1.1 listen to each so-many-th watch only. The others are read
	// without being copied or decrypted, which costs half as much: for when the server could do more
	// than clients on the same machine can take. 0 is every one.
	Every int

	Wire *wire.Wire // by which clients reach the server; nil is loopback

	NoDelays bool // count only: for a swarm that lives so long that the delays of all it saw were too many
}

// WatchSet is a number of open watches.
type WatchSet struct {
	seen  atomic.Int64
	lost  atomic.Int64
	tried atomic.Int64 // again

	countOnly bool

	mu      sync.Mutex
	live    []reader
	delays  []int32 // microseconds
	problem error   // how the first was lost
}

// reader is a thread that reads for a swarm.
type reader interface {
	run()
	close() // returns when run has
}

// Start opens watches and returns when each has been answered. Close it.
func Start(ctx context.Context, o Options) (*WatchSet, error) {
	if o.Accept == "" {
		o.Accept = "application/json"
	}
	if o.AtOnce == 0 {
		o.AtOnce = dialing
	}
	s := &WatchSet{countOnly: o.NoDelays}
	open := s.startHTTP1
	if o.PerConn > 0 {
		open = s.startHTTP2
	}
	if err := open(ctx, o); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends all watches.
func (s *WatchSet) Close() {
	s.mu.Lock()
	live := s.live
	s.live = nil
	s.mu.Unlock()
	for _, r := range live {
		r.close()
	}
}

// dialing is how many connections are opened at a time, if nothing else is said.
const dialing = 16

// token is what a connection shows.
func (o *Options) token(conn int) string {
	if o.Tokens == nil {
		return o.Server.Token
	}
	return o.Tokens[conn]
}

// read lets a reader read until Close.
func (s *WatchSet) read(r reader) {
	s.mu.Lock()
	s.live = append(s.live, r)
	s.mu.Unlock()
	go r.run()
}

// Reset forgets what was seen.
func (s *WatchSet) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Store(0)
	s.delays = s.delays[:0]
}

// Seen is how many stamps have arrived since Reset.
func (s *WatchSet) Seen() int64 { return s.seen.Load() }

// Lost is how many watches have ended by themselves, and how the first did.
func (s *WatchSet) Lost() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost.Load(), s.problem
}

// Again is how many connections were tried again until all were open.
func (s *WatchSet) Again() int64 { return s.tried.Load() }

// Await waits until n stamps have arrived since Reset, or for so long none, and reports whether
// they have.
func (s *WatchSet) Await(ctx context.Context, n int64, patience time.Duration) bool {
	seen, since := s.Seen(), time.Now()
	for seen < n && ctx.Err() == nil && time.Since(since) < patience {
		time.Sleep(time.Millisecond)
		if now := s.Seen(); now != seen {
			seen, since = now, time.Now()
		}
	}
	return seen >= n
}

// Delays are the delays of all that has arrived since Reset.
func (s *WatchSet) Delays() Delays {
	s.mu.Lock()
	defer s.mu.Unlock()
	return newDelays(s.delays)
}

// took adds what a reader has read.
func (s *WatchSet) took(delays []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.countOnly {
		s.delays = append(s.delays, delays...)
	}
	s.seen.Add(int64(len(delays)))
}

// lose counts a watch that ended.
func (s *WatchSet) lose(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost.Add(1) == 1 {
		s.problem = err
	}
}

// delay is how long ago a stamp was made, in microseconds.
func delay(now, nanos int64) int32 { return int32((now - nanos) / 1000) }
