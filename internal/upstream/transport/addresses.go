package transport

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// unresponsiveAfter is how long a connection must have waited for a byte when it is closed, for
	// its address to count as unresponsive. It is less than any of the times after which a
	// connection is given up (pingTimeout, handshakeTimeout).
	unresponsiveAfter = 3 * time.Second
	// avoidDuration is how long an unresponsive address is avoided, if another one accepts.
	avoidDuration = time.Minute
)

// addressTable knows which of upstream's addresses are unresponsive. Mirrors find them within
// seconds, because they ask for signs of life, and all transports to one upstream use what they
// found. The table holds an address while a connection to it is open or it is avoided: a name may
// resolve to other addresses every minute.
type addressTable struct {
	onUnresponsive func()

	mu     sync.Mutex
	byText map[string]*address
}

// address is what is known of one IP address and port of upstream's.
type address struct {
	lastRead atomic.Int64 // when any connection to it was last read from, in Unix nanoseconds

	// Guarded by addressTable.mu.
	conns      int       // that are open
	avoidUntil time.Time // in the past: it is responsive
}

// newAddressTable makes a table that calls onUnresponsive, which must return at once, whenever an
// address becomes unresponsive.
func newAddressTable(onUnresponsive func()) *addressTable {
	return &addressTable{onUnresponsive: onUnresponsive, byText: map[string]*address{}}
}

// acquire is the address of a connection, until release.
func (t *addressTable) acquire(text string) *address {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pruneLocked()
	a := t.byText[text]
	if a == nil {
		a = &address{}
		t.byText[text] = a
	}
	a.conns++
	return a
}

func (t *addressTable) release(a *address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.conns--
	t.pruneLocked()
}

// pruneLocked forgets addresses of which nothing more is known than of new ones.
func (t *addressTable) pruneLocked() {
	now := time.Now()
	maps.DeleteFunc(t.byText, func(_ string, a *address) bool { return a.conns == 0 && now.After(a.avoidUntil) })
}

func (t *addressTable) isUnresponsive(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.byText[text]
	return a != nil && !time.Now().After(a.avoidUntil)
}

// markUnresponsive says that a connection to an address was given up.
func (t *addressTable) markUnresponsive(a *address) {
	t.mu.Lock()
	a.avoidUntil = time.Now().Add(avoidDuration)
	t.mu.Unlock()
	t.onUnresponsive()
}

// markResponsive says that a server speaks at an address.
func (t *addressTable) markResponsive(a *address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.avoidUntil = time.Time{}
}
