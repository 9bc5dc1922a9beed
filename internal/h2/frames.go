package h2

import (
	"encoding/binary"
	"errors"

	"golang.org/x/net/http2"
)

// takeFrames acts on the whole frames of an input. With quick it stops in front of one that is not
// quick to take, or after many, and reports that: slow. An error is the end of the connection.
func (c *Conn) takeFrames(in *input, quick bool) (slow bool, err error) {
	if !c.hasPreface {
		if c.hasPreface, err = in.takePreface(); !c.hasPreface {
			return false, err
		}
	}
	defer c.cork(false)
	for taken := 0; c.closeErr == nil; taken++ {
		length, isWhole := in.frameLength()
		if !isWhole {
			return false, nil
		}
		isQuick := in.isQuick()
		if quick && (!isQuick || taken == quickFrames) {
			return true, nil
		}
		c.cork(isQuick)
		if err := c.takeNext(in, length); err != nil {
			return false, err
		}
	}
	in.from = in.to // it is read, so that what was sent last is not lost to a reset
	return false, nil
}

// takeNext reads the frame that comes next, which is whole, and acts on it. It sends the client
// what is wrong with it. An error is the end of the connection.
func (c *Conn) takeNext(in *input, length int) error {
	frame, err := c.readFrame(in, length)
	if err == nil {
		err = c.takeFrame(frame)
	} else if errors.Is(err, http2.ErrFrameTooLarge) {
		err = http2.ConnectionError(http2.ErrCodeFrameSize)
	}
	if err == nil {
		return nil
	}
	var ofStream http2.StreamError
	var ofConn http2.ConnectionError
	switch {
	case errors.As(err, &ofStream):
		c.refuseStream(ofStream)
	case errors.As(err, &ofConn):
		c.goAway(http2.ErrCode(ofConn))
		if frame == nil || c.headsLost { // it is not known where the next one begins, or what it says
			c.closeErr = ofConn
		}
	default:
		return err
	}
	return nil
}

// readFrame reads the frame that comes next. Between the frames of a head there may be no other
// (RFC 9113, section 4.3).
func (c *Conn) readFrame(in *input, length int) (http2.Frame, error) {
	h := in.buffer[in.from:]
	isContinued, id := http2.FrameType(h[3]) == http2.FrameContinuation, binary.BigEndian.Uint32(h[5:])&maxWindow
	if b := c.incoming; (b != nil) != isContinued || b != nil && b.headers.StreamID != id {
		if length <= frameHeader+minFrame {
			return nil, http2.ConnectionError(http2.ErrCodeProtocol)
		}
	}
	c.longInput = c.longInput || length > keptFrame
	return in.readFrame(length)
}

// takeFrame acts on one frame.
func (c *Conn) takeFrame(frame http2.Frame) error {
	if settings, ok := frame.(*http2.SettingsFrame); !c.hasSettings && (!ok || settings.IsAck()) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.keepalive.frameReceived()
	if !c.hasSettings {
		c.hasSettings = true
		c.mu.Lock()
		c.keepalive.reportBusy(false)
		c.keepalive.checkNow()
		c.unlockAndFlush()
	}
	switch f := frame.(type) {
	case *http2.HeadersFrame:
		return c.beginHead(f)
	case *http2.ContinuationFrame:
		return c.continueHead(f)
	}
	c.mu.Lock()
	defer c.unlockAndFlush()
	if c.isIgnoredLocked(frame.Header()) {
		if data, ok := frame.(*http2.DataFrame); ok {
			return c.discardDataLocked(data)
		}
		return nil
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		return c.applySettingsLocked(f)
	case *http2.DataFrame:
		return c.receiveDataLocked(f)
	case *http2.WindowUpdateFrame:
		return c.receiveWindowUpdateLocked(f)
	case *http2.RSTStreamFrame:
		return c.receiveResetLocked(f)
	case *http2.PingFrame:
		c.receivePingLocked(f)
	case *http2.PriorityFrame:
		if f.StreamID == f.StreamDep {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.GoAwayFrame:
		c.goAwayLocked(http2.ErrCodeNo) // as the client does
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

// isIgnoredLocked reports the frames that do not count any more: all of them after an error, and
// after GOAWAY those of streams that came later.
func (c *Conn) isIgnoredLocked(h http2.FrameHeader) bool {
	return c.err != nil || c.goAwayCode != http2.ErrCodeNo || c.goAwaySent && h.StreamID > c.lastStreamID
}

// receivePingLocked answers a ping, or notes the answer to ours.
func (c *Conn) receivePingLocked(f *http2.PingFrame) {
	if f.IsAck() {
		c.keepalive.pingAcked(f.Data)
		return
	}
	c.checkFloodLocked()
	_ = c.framer.WritePing(true, f.Data)
	c.notifySenderLocked()
}

// receiveResetLocked takes a RST_STREAM frame.
func (c *Conn) receiveResetLocked(f *http2.RSTStreamFrame) error {
	if c.isIdleStreamLocked(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if s := c.streams[f.StreamID]; s != nil {
		s.closeLocked(ErrReset)
	}
	return nil
}

// isIdleStreamLocked reports that a stream has yet to be opened.
func (c *Conn) isIdleStreamLocked(id uint32) bool { return id%2 == 0 || id > c.lastStreamID }
