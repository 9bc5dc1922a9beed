package watch

import (
	"time"

	"spillway/internal/clientconn"
	"spillway/internal/fanout"
)

// streamCounters are what metrics and the status page show of an open stream.
type streamCounters struct {
	live         bool // it is past its initial events
	bytes        int64
	position     fanout.CursorPosition
	unsent       int       // bytes that the client has yet to take
	blockedSince time.Time // when the client last took anything; zero: no send waits for it
}

// counters returns the stream's counters, or false if it has ended. Any goroutine may call it: it
// waits for a read of the stream's cursor at most, never for its client. A delivery keeps no
// counters for it, and only locks mu while it changes what is read here.
func (s *Stream) counters() (c streamCounters, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ended {
		return c, false
	}
	c = streamCounters{live: s.mu.live, bytes: s.sentBytes.Load(), unsent: s.mu.unsent}
	if c.live {
		c.position = s.cursor.Position()
	}
	if s.mu.unsent > 0 {
		c.blockedSince = s.mu.blockedSince.time()
	}
	if since, unsent := s.mu.initialWait.Of(); !since.IsZero() {
		c.blockedSince, c.unsent = since, unsent
	}
	return c, true
}

// markLive notes that the stream is past its initial events: from now on its cursor may be read.
func (s *Stream) markLive() {
	s.liveSelector.Store(s.cursor.Selector())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.live = true
}

// noteBlocked notes how many bytes wait for the client, and since when it has taken nothing. 0: it
// has taken all of them.
func (s *Stream) noteBlocked(unsent int, since monotonicTime) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.unsent, s.mu.blockedSince = unsent, since
}

// noteInitialWait notes where the waits of initial events are; nil: these are over.
func (s *Stream) noteInitialWait(wait *clientconn.ClientWait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.initialWait = wait
}

// slowWriteTime is how long a write of a stream with a goroutine has waited if its client counts as
// slow. A shorter one may only be under way.
const slowWriteTime = time.Second

// waitsForClient reports that the client is slow: the socket of the stream's slot is full, or a
// write has waited for slowWriteTime.
func (s *Stream) waitsForClient() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since, _ := s.mu.initialWait.Of(); !since.IsZero() {
		return !s.mu.ended && time.Since(since) >= slowWriteTime
	}
	if s.mu.ended || s.mu.unsent == 0 {
		return false
	}
	return s.slot.Load() != nil || now().since(s.mu.blockedSince) >= slowWriteTime
}

// slowClients is how many streams wait for their clients. It is counted at a scrape, so that an end
// needs to uncount nothing.
func (m *Manager) slowClients() (n int) {
	for _, st := range m.Streams() {
		if st.waitsForClient() {
			n++
		}
	}
	return n
}

// closeCursor notes that the stream has ended, and gives its place in history back.
func (s *Stream) closeCursor() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ended, s.beginning = true, beginning{}
	if s.backfill != nil {
		s.backfill.Close()
	}
	if s.cursor != nil {
		s.cursor.Close()
	}
}
