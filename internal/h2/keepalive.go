package h2

import (
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// keepalive ends the connections of clients that send no settings, that answer no ping, or that
// have had no stream for the idle timeout. Guarded by Conn.mu, but for the time.
type keepalive struct {
	conn  *Conn
	timer *time.Timer
	began time.Time // also read without mu by the reader, which starts later
	// when the last frame came, in nanoseconds from the beginning: a wall clock may be set; 0: none
	// has come
	lastFrame  atomic.Int64
	idleSince  time.Time // since when there is no stream; zero: there are some
	pingSentAt time.Time // when the unanswered ping was sent; zero: none is
	pingData   [8]byte   // its payload
}

var (
	errSilent     = errors.New("the client has not answered a ping")
	errNoSettings = errors.New("the client sent no settings")
)

func (a *keepalive) start(c *Conn) {
	now := time.Now()
	a.conn, a.began, a.idleSince = c, now, now
	if c.err != nil {
		return
	}
	a.timer = time.AfterFunc(helloTimeout, a.check)
}

// checkNow runs check at once, to compute anew what is due next: after the client's first frame
// that may be a ping or the end of an idle connection. Called with mu held.
func (a *keepalive) checkNow() {
	if a.conn.err == nil {
		a.timer.Reset(0)
	}
}

func (a *keepalive) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// streamsOpened and streamsClosed note that there are streams, and that there are none. Called with
// mu held.
func (a *keepalive) streamsOpened() {
	if !a.idleSince.IsZero() {
		a.idleSince = time.Time{}
		a.reportBusy(true)
	}
}

func (a *keepalive) streamsClosed() {
	a.idleSince = time.Now()
	a.reportBusy(false)
}

func (a *keepalive) reportBusy(streams bool) {
	if busy := a.conn.opts.Busy; busy != nil && a.conn.err == nil {
		busy(streams)
	}
}

func (a *keepalive) frameReceived() { a.lastFrame.Store(max(1, int64(time.Since(a.began)))) }

// pingAcked takes the answer to a ping. Called with mu held.
func (a *keepalive) pingAcked(word [8]byte) {
	if word == a.pingData && !a.pingSentAt.IsZero() {
		a.pingSentAt = time.Time{}
		a.checkNow() // and not when the answer would have been due
	}
}

// check does what is due, and sets when to check again.
func (a *keepalive) check() {
	c := a.conn
	c.mu.Lock()
	now := time.Now()
	next, err := a.nextCheck(now)
	if err == nil && c.err == nil {
		a.timer.Reset(max(next.Sub(now), time.Millisecond))
	}
	c.unlockAndFlush()
	if err != nil {
		c.end(err)
	}
}

// nextCheck does what the time has come for, and returns when something will be due next. Called
// with mu held.
func (a *keepalive) nextCheck(now time.Time) (time.Time, error) {
	c := a.conn
	spoke := a.lastFrame.Load()
	if spoke == 0 {
		if !now.Before(a.began.Add(helloTimeout)) {
			return now, errNoSettings
		}
		return a.began.Add(helloTimeout), nil
	}
	next := now.Add(time.Hour)
	switch {
	case c.opts.Idle <= 0:
	case a.idleSince.IsZero():
		next = now.Add(c.opts.Idle)
	case !now.Before(a.idleSince.Add(c.opts.Idle)):
		c.goAwayLocked(http2.ErrCodeNo)
	default:
		next = a.idleSince.Add(c.opts.Idle)
	}
	if c.opts.Quiet <= 0 {
		return next, nil
	}
	quiet := a.began.Add(time.Duration(spoke) + c.opts.Quiet)
	switch {
	case !a.pingSentAt.IsZero():
		quiet = a.pingSentAt.Add(c.opts.Pong)
		if !now.Before(quiet) {
			return now, errSilent
		}
	case !now.Before(quiet):
		_, _ = rand.Read(a.pingData[:])
		a.pingSentAt, quiet = now, now.Add(c.opts.Pong)
		_ = c.framer.WritePing(false, a.pingData)
		c.flushOutbox()
	}
	if quiet.Before(next) {
		next = quiet
	}
	return next, nil
}
