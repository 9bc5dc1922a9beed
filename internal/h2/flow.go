package h2

import (
	"golang.org/x/net/http2"
)

// inflow is what the client may still send on a stream or a connection. Small credits are saved up,
// so that a frame tells of many.
type inflow struct {
	left, unsent int32
}

// creditThreshold is the credit from which a WINDOW_UPDATE frame is sent.
const creditThreshold = 4 << 10

// takeWindow notes that n bytes have come, and reports whether they were allowed.
func (f *inflow) takeWindow(n uint32) bool {
	if n > uint32(max(f.left, 0)) {
		return false
	}
	f.left -= int32(n) // #nosec G115 -- windows are below 2^31 (RFC 9113, section 6.9.1)
	return true
}

// addWindow gives n bytes of credit, and returns the increment to send to the client now.
func (f *inflow) addWindow(n int) int32 {
	f.unsent += int32(n) // #nosec G115 -- windows are below 2^31 (RFC 9113, section 6.9.1)
	if f.unsent < creditThreshold && f.unsent < f.left {
		return 0
	}
	granted := f.unsent
	f.left, f.unsent = f.left+granted, 0
	return granted
}

// creditConnLocked lets the client send n bytes more on the connection. With 0 it sends the credit
// that was saved up, if the client needs it by now.
func (c *Conn) creditConnLocked(n int) { c.sendCreditLocked(&c.inflow, 0, n) }

// creditStreamLocked lets the client send n bytes more on a stream.
func (c *Conn) creditStreamLocked(s *Stream, n int) { c.sendCreditLocked(&s.inflow, s.id, n) }

func (c *Conn) sendCreditLocked(flow *inflow, id uint32, n int) {
	if c.err != nil {
		return
	}
	if granted := flow.addWindow(n); granted > 0 {
		c.checkFloodLocked()
		_ = c.framer.WriteWindowUpdate(id, uint32(granted))
		c.notifySenderLocked()
	}
}

// discardDataLocked gives back the credit of a DATA frame that no handler reads.
func (c *Conn) discardDataLocked(f *http2.DataFrame) error {
	if !c.inflow.takeWindow(f.Length) {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	c.creditConnLocked(int(f.Length))
	return nil
}

// receiveWindowUpdateLocked takes a WINDOW_UPDATE frame.
func (c *Conn) receiveWindowUpdateLocked(f *http2.WindowUpdateFrame) error {
	if f.StreamID == 0 {
		if c.window += int64(f.Increment); c.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		c.wakeWaitingLocked()
		return nil
	}
	if c.isIdleStreamLocked(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	s := c.streams[f.StreamID]
	if s == nil {
		return nil
	}
	if s.window += int64(f.Increment); s.window > maxWindow {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	s.notifyLocked()
	return nil
}

// setInitialWindowLocked takes SETTINGS_INITIAL_WINDOW_SIZE, which also changes the windows of open
// streams.
func (c *Conn) setInitialWindowLocked(window int64) error {
	more := window - int64(c.initialWindow)
	c.initialWindow = int32(window) // #nosec G115 -- windows are below 2^31 (RFC 9113, section 6.9.1)
	for _, s := range c.streams {
		if s.window += more; s.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		if more > 0 {
			s.notifyLocked()
		}
	}
	return nil
}
