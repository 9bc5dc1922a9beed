package h2

import (
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// keepalive notices clients that say nothing: those that never greet, those that vanished, and
// those that want nothing any more. Guarded by Conn.mu, but for the time.
type keepalive struct {
	conn  *Conn
	timer *time.Timer
	began time.Time // also read without mu by the reader, which starts later
	// when the last frame came, in nanoseconds from the beginning: a wall clock may be set; 0: none
	// has come
	spoke atomic.Int64
	idle  time.Time // since when there is no stream; zero: there are some
	asked time.Time // when the unanswered ping was sent; zero: none is
	word  [8]byte   // what it is to say
}

var (
	errSilent     = errors.New("the client has not answered a ping")
	errNoSettings = errors.New("the client sent no settings")
)

func (a *keepalive) start(c *Conn) {
	now := time.Now()
	a.conn, a.began, a.idle = c, now, now
	if c.err != nil {
		return
	}
	a.timer = time.AfterFunc(helloTimeout, a.look)
}

// soon looks anew when what is due next: after the client's first frame it may be idle, and be
// asked. Called with mu held.
func (a *keepalive) soon() {
	if a.conn.err == nil {
		a.timer.Reset(0)
	}
}

func (a *keepalive) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// stir and rest note that there are streams, and that there are none. Called with mu held.
func (a *keepalive) stir() {
	if !a.idle.IsZero() {
		a.idle = time.Time{}
		a.tell(true)
	}
}

func (a *keepalive) rest() {
	a.idle = time.Now()
	a.tell(false)
}

func (a *keepalive) tell(streams bool) {
	if busy := a.conn.opts.Busy; busy != nil && a.conn.err == nil {
		busy(streams)
	}
}

func (a *keepalive) heard() { a.spoke.Store(max(1, int64(time.Since(a.began)))) }

// ponged notes an answer. Called with mu held.
func (a *keepalive) ponged(word [8]byte) {
	if word == a.word && !a.asked.IsZero() {
		a.asked = time.Time{}
		a.soon() // and not when the answer would have been due
	}
}

// look looks whether the client is there, and sets when to look again.
func (a *keepalive) look() {
	c := a.conn
	c.mu.Lock()
	now := time.Now()
	next, err := a.due(now)
	if err == nil && c.err == nil {
		a.timer.Reset(max(next.Sub(now), time.Millisecond))
	}
	c.unlock()
	if err != nil {
		c.end(err)
	}
}

// due does what the time has come for, and returns when something will be due next. Called with mu
// held.
func (a *keepalive) due(now time.Time) (time.Time, error) {
	c := a.conn
	spoke := a.spoke.Load()
	if spoke == 0 {
		if !now.Before(a.began.Add(helloTimeout)) {
			return now, errNoSettings
		}
		return a.began.Add(helloTimeout), nil
	}
	next := now.Add(time.Hour)
	switch {
	case c.opts.Idle <= 0:
	case a.idle.IsZero():
		next = now.Add(c.opts.Idle)
	case !now.Before(a.idle.Add(c.opts.Idle)):
		c.leave(http2.ErrCodeNo)
	default:
		next = a.idle.Add(c.opts.Idle)
	}
	if c.opts.Quiet <= 0 {
		return next, nil
	}
	quiet := a.began.Add(time.Duration(spoke) + c.opts.Quiet)
	switch {
	case !a.asked.IsZero():
		quiet = a.asked.Add(c.opts.Pong)
		if !now.Before(quiet) {
			return now, errSilent
		}
	case !now.Before(quiet):
		_, _ = rand.Read(a.word[:])
		a.asked, quiet = now, now.Add(c.opts.Pong)
		_ = c.framer.WritePing(false, a.word)
		c.flush()
	}
	if quiet.Before(next) {
		next = quiet
	}
	return next, nil
}
