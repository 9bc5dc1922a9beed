package watch

import (
	"crypto/tls"
	"net"
	"reflect"
	"unsafe"

	"spillway/internal/clientconn"
)

// lookahead reads what turns are about to read, and does nothing with it. A thousand slots, their
// streams, ciphers and connections are more than the nearest caches hold, and between two events
// others have used these. A turn on its own waits for one line of memory after another; read for
// several slots at once, where none depends on another, they come together, which saves about a
// tenth of a turn.
//
// It reads what only the writer writes, or nobody. What lies in other packages it finds by the
// names of fields, and where it does not find it, as in another version of Go, it leaves that out.
type lookahead struct {
	sum int // so that nothing is left out as useless
}

const (
	// lookaheadTurns is for how many turns at a time: what they need fits into the nearest cache, and
	// more reads are never under way at once.
	lookaheadTurns = 16
	cacheLine      = 64 // bytes
)

// read reads for the slots whose turns are next. What is reached through something else is read
// after that is there for all of them.
func (l *lookahead) read(slots []*slot) {
	for _, s := range slots {
		l.sum += s.place + s.index + len(s.reason) + len(s.rest) + len(s.port.held)
	}
	for _, s := range slots {
		if !s.over {
			l.sum += int(s.stream.bytes.Load()) + len(s.stream.gate.opens()) + s.port.ahead()
		}
	}
	for _, s := range slots {
		if !s.over {
			l.sum += int(s.stream.cursor.Lag()) + s.port.behind.read() // #nosec G115 -- a sum that nobody looks at
			if s.stream.cursor.Follows() {
				l.sum++
			}
		}
	}
}

// ahead reads what the port's own fields point to.
func (p *port) ahead() (sum int) {
	if p.below != nil {
		sum += p.below.Prefetch()
	}
	if c, ok := p.secure.(*tls.Conn); ok {
		sum += tlsPlaces.read(unsafe.Pointer(c)) // #nosec G103 -- reads what is there, to have it in the cache
	}
	return sum
}

// places are where in a struct there is something to read: a byte for each cache line.
type places []uintptr

// tlsPlaces are those of the lines that a tls.Conn writes with, by fields that no other goroutine
// changes meanwhile.
var tlsPlaces = placesOf(reflect.TypeFor[tls.Conn](), "conn", "config", "clientProtocol", "out", "bytesSent",
	"packetsSent")

func placesOf(of reflect.Type, fields ...string) (p places) {
	for _, name := range fields {
		if field, found := of.FieldByName(name); found {
			for at := field.Offset; at < field.Offset+field.Type.Size(); at += cacheLine {
				p = append(p, at)
			}
		}
	}
	return p
}

func (p places) read(of unsafe.Pointer) (sum int) {
	for _, at := range p {
		sum += int(*(*byte)(unsafe.Add(of, at)))
	}
	return sum
}

// behind is what a port sends through besides, nil where it is not known: its outlet, what Go knows
// of the connection's descriptor, what the cipher gets its nonces from, and the cipher: its keys,
// and what was computed of them. The last two change with each write, and are of no use any more
// once the keys have been changed.
type behind struct {
	outlet, descriptor, nonces *byte // the first of each
	cipher                     []byte
}

func behindOf(out outlet, c net.Conn) behind {
	descriptor := structAt(fieldOf(structAt(reflect.ValueOf(clientconn.RawConn(c))), "fd"))
	b := behind{outlet: first(structAt(reflect.ValueOf(out))),
		descriptor: first(fieldOf(fieldOf(descriptor, "pfd"), "IsStream"))}
	if conn, ok := c.(*tls.Conn); ok {
		sealer := structAt(fieldOf(fieldOf(reflect.ValueOf(conn).Elem(), "out"), "cipher"))
		b.nonces = first(sealer)
		if cipher := structAt(fieldOf(sealer, "aead")); cipher.IsValid() {
			b.cipher = unsafe.Slice(first(cipher),
				cipher.Type().Size()) // #nosec G103 -- reads what is there, to have it in the cache
		}
	}
	return b
}

func (b *behind) read() (sum int) {
	for _, at := range [...]*byte{b.outlet, b.descriptor, b.nonces} {
		if at != nil {
			sum += int(*at)
		}
	}
	for i := 0; i < len(b.cipher); i += cacheLine {
		sum += int(b.cipher[i])
	}
	return sum
}

// first is where something begins, nil if there is nothing.
func first(of reflect.Value) *byte {
	if !of.IsValid() {
		return nil
	}
	return (*byte)(of.Addr().UnsafePointer())
}

// fieldOf is a field of a struct, nothing if there is none.
func fieldOf(of reflect.Value, name string) reflect.Value {
	if of.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return of.FieldByName(name)
}

// structAt is the struct that a pointer points to, also one in an interface; nothing if there is
// none.
func structAt(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		return v.Elem()
	}
	return reflect.Value{}
}
