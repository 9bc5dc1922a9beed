package h2

import (
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// keepalive ends the connections of clients that send no settings, that answer no ping, or that
// have had no stream for the idle timeout. Guarded by Conn.mu, but for lastFrame: check takes it,
// and the callers of the other methods hold it.
type keepalive struct {
	conn  *Conn
	timer *time.Timer
	began time.Time // also read without mu by the reader, which starts later
	// lastFrame is when the last frame came, in nanoseconds since began, because a wall clock may be
	// set. 0: none has come.
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

// checkNow runs check at once, because something may be due earlier than check last found.
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

// streamsOpened notes that there are streams.
func (a *keepalive) streamsOpened() {
	if !a.idleSince.IsZero() {
		a.idleSince = time.Time{}
		a.reportBusy(true)
	}
}

// streamsClosed notes that there are none any more.
func (a *keepalive) streamsClosed() {
	a.idleSince = time.Now()
	a.reportBusy(false)
}

func (a *keepalive) reportBusy(hasStreams bool) {
	if busy := a.conn.opts.Busy; busy != nil && a.conn.err == nil {
		busy(hasStreams)
	}
}

func (a *keepalive) frameReceived() { a.lastFrame.Store(max(1, int64(time.Since(a.began)))) }

// pingAcked takes the answer to a ping.
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

// nextCheck does what the time has come for, and returns when something will be due next.
func (a *keepalive) nextCheck(now time.Time) (time.Time, error) {
	if a.lastFrame.Load() == 0 {
		due := a.began.Add(helloTimeout)
		if !now.Before(due) {
			return now, errNoSettings
		}
		return due, nil
	}
	next := a.checkIdle(now)
	ping, err := a.checkPing(now)
	if ping.Before(next) {
		next = ping
	}
	return next, err
}

// maxCheckInterval is when check runs again if nothing is due.
const maxCheckInterval = time.Hour

// checkIdle sends GOAWAY on a connection that has had no stream for the idle timeout, and returns
// when that will be due.
func (a *keepalive) checkIdle(now time.Time) time.Time {
	timeout := a.conn.opts.Idle
	switch due := a.idleSince.Add(timeout); {
	case timeout <= 0:
	case a.idleSince.IsZero():
		return now.Add(timeout)
	case now.Before(due):
		return due
	default:
		a.conn.goAwayLocked(http2.ErrCodeNo)
	}
	return now.Add(maxCheckInterval)
}

// checkPing sends a ping to a quiet client, and returns when the ping or its answer will be due.
func (a *keepalive) checkPing(now time.Time) (time.Time, error) {
	c := a.conn
	if c.opts.Quiet <= 0 {
		return now.Add(maxCheckInterval), nil
	}
	if !a.pingSentAt.IsZero() {
		due := a.pingSentAt.Add(c.opts.Pong)
		if !now.Before(due) {
			return now, errSilent
		}
		return due, nil
	}
	if due := a.began.Add(time.Duration(a.lastFrame.Load()) + c.opts.Quiet); now.Before(due) {
		return due, nil
	}
	_, _ = rand.Read(a.pingData[:])
	a.pingSentAt = now
	_ = c.framer.WritePing(false, a.pingData)
	c.notifySenderLocked()
	return now.Add(c.opts.Pong), nil
}
