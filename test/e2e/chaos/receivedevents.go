package chaos

import (
	"fmt"
	"sync"
	"time"
)

// note is one thing that a client received, or that befell it.
type note struct {
	at time.Time
	// listed, opened, ADDED, MODIFIED, DELETED, BOOKMARK, ERROR, ended, broken, refused, shown (to a
	// client without the right to it)
	kind string

	key     string  // of an event
	version version // of an event; its rv is also that of listed, opened and BOOKMARK
	state   map[string]version
	initial bool // listed: as the initial events of a stream

	asked ask // of listed
	code  int // of ERROR and refused
	early bool
	text  string
}

// ask is what a client may expect of an answer.
type ask struct {
	floor uint64 // the answer is at this resourceVersion at least
	era   int    // and on this timeline or a later one
}

func (n note) String() string {
	s := n.at.Format("05.000") + " " + n.kind
	if n.key != "" {
		s += fmt.Sprintf(" %s %+v", n.key, n.version)
	} else if n.version.rv > 0 {
		s += fmt.Sprintf(" at %d", n.version.rv)
	}
	if n.kind == "listed" {
		s += fmt.Sprintf(" %d objects, not below %d", len(n.state), n.asked.floor)
	}
	if n.code > 0 {
		s += fmt.Sprintf(" %d", n.code)
	}
	if n.early {
		s += " early"
	}
	return s + " " + n.text
}

// receivedEvents is all that one client received, in order.
type receivedEvents struct {
	name string
	view view

	// Guarded by mu.
	mu    sync.Mutex
	notes []note
}

func (j *receivedEvents) add(n note) {
	n.at = time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.notes = append(j.notes, n)
}

func (j *receivedEvents) all() []note {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.notes[:len(j.notes):len(j.notes)]
}
