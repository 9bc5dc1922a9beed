package h2

import (
	"time"

	"golang.org/x/net/http2"
)

// GoAway tells the client to open another connection for its next request. Streams go on, and the
// connection ends with the last.
func (c *Conn) GoAway() { c.goAway(http2.ErrCodeNo) }

func (c *Conn) goAway(code http2.ErrCode) {
	c.mu.Lock()
	defer c.unlockAndFlush()
	c.goAwayLocked(code)
}

// goAwayLocked sends GOAWAY, the first time and once more for the first error.
func (c *Conn) goAwayLocked(code http2.ErrCode) {
	if c.err != nil || c.goAwaySent && (code == http2.ErrCodeNo || c.goAwayCode != http2.ErrCodeNo) {
		return
	}
	if c.goAwaySent, c.goAwayCode = true, code; c.opts.Leaving != nil {
		c.opts.Leaving()
	}
	c.checkFloodLocked()
	_ = c.framer.WriteGoAway(c.lastStreamID, code, nil)
	c.notifySenderLocked()
	c.closeWhenIdleLocked()
}

// closeWhenIdleLocked ends the connection soon after a GOAWAY for an error, or once no stream is
// left after another one.
func (c *Conn) closeWhenIdleLocked() {
	if c.closing == nil && (c.goAwayCode != http2.ErrCodeNo || c.goAwaySent && len(c.streams) == 0) {
		end := time.Now().Add(lingerTimeout)
		c.closing = time.AfterFunc(goAwayTimeout, func() { c.lingerUntil(end) })
		c.notifySenderLocked()
	}
}

// lingerUntil ends the connection after GOAWAY. Without an error it waits for the last answers to
// be sent, but not beyond end.
func (c *Conn) lingerUntil(end time.Time) {
	c.mu.Lock()
	lingers := c.err == nil && c.goAwayCode == http2.ErrCodeNo && (c.outbox.sending || c.outbox.len() > 0) &&
		time.Now().Before(end)
	if lingers {
		c.closing.Reset(goAwayTimeout)
	}
	c.unlockAndFlush()
	if !lingers {
		c.end(errGone)
	}
}
