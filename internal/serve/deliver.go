package serve

import "time"

// deliverer moves frames from cursors to sinks, until each stream ends.
type deliverer interface {
	// deliver brings a stream to its end, and then calls its over. It may return long before that.
	deliver(s *stream)
}

// goroutines is the deliverer that gives each stream the goroutine that calls it. It is the plainest one, what every
// other must be equal to, and the one for sinks that are no sockets.
type goroutines struct{}

func (g goroutines) deliver(s *stream) {
	reason, err := s.initial()
	if reason == "" && err == nil {
		g.live(s)
		return
	}
	g.finish(s, nil, reason, err)
}

// live sends what follows the initial events.
func (g goroutines) live(s *stream) {
	s.schedule(now())
	s.told.Store(&notice{live: true})
	timer := time.NewTimer(s.next().left())
	defer timer.Stop()
	ended := s.context().Done()
	for {
		more := s.cursor.Wait()
		s.tell(true)
		run, reason, err := s.pull(true)
		if reason != "" || err != nil {
			g.finish(s, run, reason, err)
			return
		}
		if len(run) > 0 {
			if err := s.write(run); err != nil {
				g.finish(s, nil, "", err)
				return
			}
			continue
		}
		if s.shut != nil {
			more = s.shut
		}
		timer.Reset(s.next().left())
		select {
		case <-more:
		case <-timer.C:
		case <-ended:
		}
	}
}

// finish tells the client, after what is still to be sent, and settles the final reason.
func (goroutines) finish(s *stream, run []byte, reason EndReason, cause error) {
	last, reason := s.last(reason, cause)
	if reason.clean() {
		if err := s.write(append(run, last...)); err != nil {
			reason = s.failed(err)
		}
	}
	s.over(reason)
}
