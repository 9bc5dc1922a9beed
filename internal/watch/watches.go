package watch

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"spillway/internal/object"
	"spillway/internal/plan"
	"spillway/internal/source"
)

// Watch describes a watch that is served from memory, at one moment. It is for the status page, not
// for metrics: it names users and what they select.
type Watch struct {
	ID       uint64 // of no other watch of this process
	Source   *source.Source
	Selected SelectionText
	Encoding string
	User     string // "" if requests are not authenticated
	Agent    string // the User-Agent header, or its beginning
	Client   string // its address
	Protocol string
	Began    time.Time
	Deadline time.Time
	Phase    Phase
	Bytes    int64         // sent, of events: without heads, TLS and HTTP/2's frames
	Lag      uint64        // log entries that are not sent yet, from the first one that the watch selects
	Behind   time.Duration // age of that one
	Unsent   int           // bytes of the send under way that the connection has not taken
	Blocked  time.Duration // since the connection last took any of them; 0: no send waits
	// LastEvent is the time of the newest selected event at or before its position, perhaps before it
	// began; zero if that is unknown.
	LastEvent time.Time
}

// SelectionText is what a watch selects, in the words of its request or the beginning of them;
// empty where that is everything.
type SelectionText struct{ Namespace, Name, Labels, Fields string }

// Phase is how far a watch is.
type Phase string

// The phases.
const (
	Starting Phase = "starting" // what precedes live events is being sent
	Live     Phase = "live"
	Held     Phase = "held" // paused: upstream does not answer whether it is still allowed
)

// Watches lists the open watches that have a sink, by ID.
func (m *Manager) Watches() []Watch {
	m.mu.Lock()
	streams := make([]*Stream, 0, len(m.mu.streams))
	// A stream's out is guarded by m.mu, and nil until attach.
	outs := make([]sink, 0, len(m.mu.streams))
	for st := range m.mu.streams {
		streams, outs = append(streams, st), append(outs, st.out)
	}
	m.mu.Unlock()
	now := time.Now()
	watches := make([]Watch, 0, len(streams))
	for i, st := range streams {
		if c, open := st.counters(); open && outs[i] != nil {
			watches = append(watches, st.describe(outs[i], c, now))
		}
	}
	slices.SortFunc(watches, func(a, b Watch) int { return cmp.Compare(a.ID, b.ID) })
	return watches
}

// describe makes the Watch of a stream from its counters.
func (s *Stream) describe(out sink, c streamCounters, now time.Time) Watch {
	w := Watch{
		ID: s.id, Source: s.source, Selected: s.selection(), Encoding: streamEncoding(s.encoding),
		User: s.client.name(), Agent: s.client.userAgent(), Client: out.client(), Protocol: out.protocol(),
		Began: s.startedAt(), Deadline: s.deadline.time(),
		Phase: Starting, Bytes: c.bytes, Unsent: c.unsent,
	}
	if !c.blockedSince.IsZero() {
		w.Blocked = now.Sub(c.blockedSince)
	}
	if !c.live {
		return w
	}
	if w.Phase = Live; s.pause.isPaused() {
		w.Phase = Held
	}
	log := s.source.Resource().Log()
	if c.position.Pending {
		head := log.Head()
		w.Lag = head - min(head, c.position.First)
		w.Behind = s.entryAge(c.position.First, now)
	}
	if c.position.LastKnown {
		if e, ok := log.EntryAt(c.position.Last); ok {
			w.LastEvent = e.At
		}
	}
	return w
}

// startedAt is when the stream was made.
func (s *Stream) startedAt() time.Time { return s.deadline.time().Add(-s.timeout) }

// selectorBytesLimit is how much of a selector is reported, in bytes: a client may send a megabyte,
// for each of its watches.
const selectorBytesLimit = 1024

// selection is what the stream selects, in the words of its request.
func (s *Stream) selection() SelectionText {
	sel := s.selector()
	return SelectionText{Namespace: sel.Namespace, Name: sel.Name, Labels: truncateSelector(sel.LabelQuery()),
		Fields: truncateSelector(sel.FieldQuery())}
}

// truncateSelector copies the beginning of a long text, so that the Watch does not keep a megabyte
// alive.
func truncateSelector(text string) string {
	if len(text) <= selectorBytesLimit {
		return text
	}
	return strings.ToValidUTF8(text[:selectorBytesLimit], "") + "…"
}

// streamEncoding names an encoding with its content-coding.
func streamEncoding(e object.Encoding) string {
	if e.Gzip {
		return plan.EncodingName(e) + "+gzip"
	}
	return plan.EncodingName(e)
}
