package watchdog

import "sync/atomic"

// ProgressFunc is how far a loop is: turns changes whenever it moves, and working reports that it
// has something to do. It is called by the clock's goroutine, so it must not wait, least of all for
// a lock that the loop holds while it works.
type ProgressFunc func() (turns uint64, working bool)

// Loop is the progress of a goroutine that works and rests in turn. Only that goroutine calls Work
// and Rest, which cost an atomic store each; any may call Progress. The zero Loop rests.
type Loop struct{ turns atomic.Uint64 } // odd while it works

// Work begins a piece of work, and ends the one before.
func (l *Loop) Work() { l.turns.Store((l.turns.Load() + 1) | 1) }

// Rest ends a piece of work: until the next one the loop waits for what it has no influence on,
// such as an event of the API server.
func (l *Loop) Rest() { l.turns.Store((l.turns.Load() + 1) &^ 1) }

// Progress is a ProgressFunc.
func (l *Loop) Progress() (turns uint64, working bool) {
	turns = l.turns.Load()
	return turns, turns&1 == 1
}
