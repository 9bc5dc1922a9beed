package watch

import (
	"bytes"
	"net"

	"spillway/internal/clientconn"
)

// outlet is a socket that takes what it has room for, and never waits.
type outlet interface {
	// offer returns how many bytes of b were taken. If not all, park says when to try again.
	offer(b []byte) (int, error)
	// park lets room be called once there is room again. room must not block.
	park(room func())
}

// port is where a slot sends: an outlet, under TLS where there is TLS. Only its writer uses it.
//
// A TLS record is made for one connection and must go out as it is, so what a full outlet did not
// take of one is held here: a turn of them at most, and none while the client keeps up.
type port struct {
	out    outlet
	secure net.Conn              // nil: no TLS
	below  *clientconn.PacedConn // under TLS
	seal   *[]byte               // the writer's: records on their way to the outlet
	held   []byte                // those that are late
}

// send takes what it can of b: less than all of it, or with something held, if the outlet is full.
// moved says that bytes went out.
func (p *port) send(b []byte) (taken int, moved bool, err error) {
	if p.secure == nil {
		taken, err = p.out.offer(b)
		return taken, taken > 0, err
	}
	if len(p.held) > 0 {
		n, err := p.out.offer(p.held)
		if p.held = p.held[n:]; err != nil || len(p.held) > 0 {
			return 0, n > 0, err
		}
		p.held, moved = nil, true
	}
	if len(b) == 0 {
		return 0, moved, nil
	}
	if err := p.sealed(b); err != nil {
		return 0, moved, err
	}
	n, err := p.out.offer(*p.seal)
	if n < len(*p.seal) {
		p.held = bytes.Clone((*p.seal)[n:])
	}
	return len(b), moved || n > 0, err
}

// sealed leaves the records of b in seal.
func (p *port) sealed(b []byte) error {
	*p.seal = (*p.seal)[:0]
	p.below.Capture(p.seal)
	_, err := p.secure.Write(b)
	p.below.Capture(nil)
	return err
}

// full reports that the outlet has not taken all that was sent.
func (p *port) full(unsent []byte) bool { return len(unsent) > 0 || len(p.held) > 0 }
