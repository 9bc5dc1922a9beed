package watch

import (
	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/fanout"
	"spillway/internal/object"
)

// beginning is what a stream sends first. It is fixed before the head of the answer is sent, so
// that whatever a client does once it has the head is an event that the stream will send (W-100,
// W-102). The zero value is a stream of events alone.
type beginning struct {
	state *cache.Snapshot // its objects are sent as ADDED
	err   error           // the stream ends behind its head
}

// pinnedBytes is how many bytes of old state the stream keeps alive until the client has taken
// them.
func (b beginning) pinnedBytes() int64 {
	if b.state == nil {
		return 0
	}
	return pinnedBytes(b.state)
}

func pinnedBytes(s *cache.Snapshot) int64 { return max(s.Bytes, 1) }

// sendState sends a state as ADDED events.
func (s *Stream) sendState(snapshot *cache.Snapshot) (err error) {
	s.manager.opts.Eviction.BeginState()
	defer s.manager.opts.Eviction.EndState()
	pinned := pinnedBytes(snapshot)
	var run []*object.Object
	buffer := make([]byte, 0, runSize)
	beginsRun := s.runSplitter()
	snapshot.Scan(s.selector(), "", func(o *object.Object) bool {
		if beginsRun(o) && len(run) > 0 {
			buffer, err = s.writeRun(buffer[:0], run, pinned)
			run = run[:0]
		}
		run = append(run, o)
		return err == nil
	})
	if err != nil || len(run) == 0 {
		return err
	}
	_, err = s.writeRun(buffer[:0], run, pinned)
	return err
}

// runSplitter returns a function that reports whether an object begins another run. Runs are
// written at once. They have runSize at most; gzipped ones are cut where other streams cut theirs,
// so that a run may have been compressed for one of those.
func (s *Stream) runSplitter() func(*object.Object) bool {
	if s.encoding.Gzip {
		var splitter codec.SegmentSplitter
		return func(o *object.Object) bool { return splitter.Before(o, fanout.EventSize(o)) }
	}
	runBytes := 0
	return func(o *object.Object) bool {
		size := fanout.EventSize(o)
		begins := runBytes+size > runSize
		if begins {
			runBytes = 0
		}
		runBytes += size
		return begins
	}
}

// writeRun writes initial events, made in buffer, of a state of so many bytes.
func (s *Stream) writeRun(buffer []byte, run []*object.Object, pinned int64) ([]byte, error) {
	if err := s.awaitPermission(pinned); err != nil {
		return buffer, err
	}
	buffer, err := fanout.AppendState(buffer, s.encoding, run)
	if err != nil {
		return buffer, err
	}
	return buffer, s.write(buffer)
}

// runSize is how much is written at once (design D10a).
const runSize = 64 << 10

// sendInitialEventsEnd sends the bookmark that ends the initial events, to clients that want it.
func (s *Stream) sendInitialEventsEnd() error {
	if !s.wantsInitialEventsEnd {
		return nil
	}
	return s.sendFrame(fanout.AppendBookmark(nil, s.encoding, s.bookmarkTemplate(), s.startRV, true))
}
