package clientconn

import (
	"bytes"
	"crypto/tls"
	"net"
	"reflect"
	"unsafe"
)

// tlsBuffers are where a tls.Conn keeps what it reads into: as much as a ClientHello needed, twice,
// which is 3.5 kB if the client offers a post-quantum key exchange. It never lets go of them, and a
// watch, from which nothing more is read, would hold them to its end.
//
// Nothing but their places is known of them. Where they are not found, as in another version of Go,
// they are left alone.
type tlsBuffers struct {
	raw, hand, input uintptr
	known            bool
}

// buffersOfTLS are those of the crypto/tls that this is built with.
var buffersOfTLS = findTLSBuffers(reflect.TypeFor[tls.Conn]())

func findTLSBuffers(conn reflect.Type) (b tlsBuffers) {
	raw, rawFound := conn.FieldByName("rawInput") // records
	hand, handFound := conn.FieldByName("hand")   // messages of a handshake
	input, inputFound := conn.FieldByName("input")
	if !rawFound || !handFound || !inputFound {
		return b
	}
	buffer, reader := reflect.TypeFor[bytes.Buffer](), reflect.TypeFor[bytes.Reader]() // of a record in rawInput
	return tlsBuffers{
		raw: raw.Offset, hand: hand.Offset, input: input.Offset,
		known: raw.Type == buffer && hand.Type == buffer && input.Type == reader,
	}
}

// DropTLSBuffers lets go of the buffers that a TLS connection reads into, if they are empty.
// Nothing reads the connection meanwhile. Any other connection is left alone.
func DropTLSBuffers(c net.Conn) { buffersOfTLS.drop(c) }

// drop lets go of the buffers of a connection that nobody reads meanwhile, if they are empty. It
// makes new ones when it is read again.
func (b tlsBuffers) drop(c net.Conn) {
	conn, ok := c.(*tls.Conn)
	if !ok || !b.known {
		return
	}
	at := unsafe.Pointer(conn) // #nosec G103 -- fields of a tls.Conn that have been found
	raw, hand, input := (*bytes.Buffer)(unsafe.Add(at, b.raw)), (*bytes.Buffer)(unsafe.Add(at, b.hand)),
		(*bytes.Reader)(unsafe.Add(at, b.input))
	if raw.Len() == 0 && hand.Len() == 0 && input.Len() == 0 {
		*raw, *hand, *input = bytes.Buffer{}, bytes.Buffer{}, bytes.Reader{}
	}
}
