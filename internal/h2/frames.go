package h2

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/net/http2"
)

// maxSettings is how many settings a frame may have. No honest client sends more.
const maxSettings = 100

// takeFrame acts on one frame.
func (c *Conn) takeFrame(frame http2.Frame) error {
	if settings, ok := frame.(*http2.SettingsFrame); !c.greeted && (!ok || settings.IsAck()) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.keepalive.frameReceived()
	if !c.greeted {
		c.greeted = true
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
	if c.isIgnored(frame.Header()) {
		if data, ok := frame.(*http2.DataFrame); ok {
			return c.discardData(data)
		}
		return nil
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		return c.applySettings(f)
	case *http2.DataFrame:
		return c.receiveData(f)
	case *http2.WindowUpdateFrame:
		return c.receiveWindowUpdate(f)
	case *http2.RSTStreamFrame:
		return c.receiveReset(f)
	case *http2.PingFrame:
		c.receivePing(f)
	case *http2.PriorityFrame:
		if f.StreamID == f.StreamDep {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.GoAwayFrame:
		c.goAwayLocked(http2.ErrCodeNo) // as it does
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

// isIgnored reports the frames that do not count any more: all of them after an error, and after
// GOAWAY those of streams that came later.
func (c *Conn) isIgnored(h http2.FrameHeader) bool {
	return c.err != nil || c.goAwayCode != http2.ErrCodeNo || c.goAwaySent && h.StreamID > c.lastStreamID
}

// applySettings takes the client's, or its word that it has taken ours.
func (c *Conn) applySettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		if c.unacked--; c.unacked < 0 {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		return nil
	}
	if f.NumSettings() > maxSettings || f.HasDuplicates() {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if err := f.ForeachSetting(c.applySetting); err != nil {
		return err
	}
	c.sendControl()
	_ = c.framer.WriteSettingsAck()
	c.flushOutbox()
	return nil
}

func (c *Conn) applySetting(s http2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	switch s.ID {
	case http2.SettingHeaderTableSize:
		c.encoder.SetMaxDynamicTableSize(s.Val)
	case http2.SettingMaxFrameSize:
		c.maxFrame = int(min(s.Val, maxFrame))
	case http2.SettingInitialWindowSize:
		return c.setInitialWindow(int64(s.Val))
	case http2.SettingNoRFC7540Priorities:
		if s.Val > 1 {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
	}
	return nil
}

// receivePing answers a ping, or notes the answer to ours.
func (c *Conn) receivePing(f *http2.PingFrame) {
	if f.IsAck() {
		c.keepalive.pingAcked(f.Data)
		return
	}
	c.sendControl()
	_ = c.framer.WritePing(true, f.Data)
	c.flushOutbox()
}

// receiveReset takes a RST_STREAM frame.
func (c *Conn) receiveReset(f *http2.RSTStreamFrame) error {
	if c.isIdleStream(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if s := c.streams[f.StreamID]; s != nil {
		s.close(ErrReset)
	}
	return nil
}

// isIdleStream reports that a stream has yet to be opened.
func (c *Conn) isIdleStream(id uint32) bool { return id%2 == 0 || id > c.lastStreamID }

// takeAll takes the whole frames of an input. With quick, it stops before one that is not quick to
// take, or after many, and reports that: slow. An error is the end of the connection.
func (c *Conn) takeAll(in *input, quick bool) (slow bool, err error) {
	if c.ignoring {
		in.from = in.to // so that what was sent last is not lost to a reset
		return false, nil
	}
	if !c.prefaced {
		if in.to-in.from < len(http2.ClientPreface) {
			return false, nil
		}
		preface := string(in.buffer[in.from:][:len(http2.ClientPreface)])
		in.from += len(preface)
		if preface != http2.ClientPreface {
			return false, fmt.Errorf("began with %q", preface)
		}
		c.prefaced = true
	}
	corked := false
	defer func() { c.cork(&corked, false) }()
	taken := 0
	for length, ok := in.frameLength(); ok; length, ok = in.frameLength() {
		short := in.isQuick()
		if quick && (!short || taken == quickFrames) {
			return true, nil
		}
		taken++
		c.cork(&corked, short)
		frame, err := c.takeOne(in, length)
		switch {
		case err == nil:
			err = c.takeFrame(frame)
		case errors.Is(err, http2.ErrFrameTooLarge):
			err = http2.ConnectionError(http2.ErrCodeFrameSize)
		}
		var stream http2.StreamError
		var all http2.ConnectionError
		switch {
		case err == nil:
		case errors.As(err, &stream):
			c.refuseStream(stream)
		case errors.As(err, &all):
			c.goAway(http2.ErrCode(all))
			if frame == nil || c.connLost { // where the next one begins is not known, or what it says
				c.ignoring, c.closeErr = true, all
				in.from = in.to
				return false, nil
			}
		default:
			return false, err
		}
	}
	return false, nil
}

// takeOne reads the frame that comes next, which is whole. Between the frames of a head there may
// be no other (RFC 9113, section 4.3).
func (c *Conn) takeOne(in *input, length int) (http2.Frame, error) {
	h := in.buffer[in.from:]
	continued, id := http2.FrameType(h[3]) == http2.FrameContinuation, binary.BigEndian.Uint32(h[5:])&maxWindow
	if b := c.incoming; (b != nil) != continued || b != nil && b.headers.StreamID != id {
		if length <= frameHeader+minFrame {
			return nil, http2.ConnectionError(http2.ErrCodeProtocol)
		}
	}
	c.longInput = c.longInput || length > keptFrame
	return in.takeFrame(length)
}
