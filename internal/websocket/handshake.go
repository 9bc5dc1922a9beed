package websocket

import (
	"crypto/sha1" // #nosec G505 -- RFC 6455 wants it, as a checksum
	"encoding/base64"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Handshake is a request for a WebSocket that kube-apiserver agrees to.
type Handshake struct {
	key      string
	protocol string // the subprotocol asked for; empty: none
}

// HandshakeOf reads the handshake of a GET. values returns the headers of a name. It reports false
// for a request that asks for no WebSocket, and for one that kube-apiserver refuses or that two
// parties may read differently.
//
// More than one subprotocol is refused by kube-apiserver, which does not choose (W-119). One of
// several is a browser's bearer token, which it removes first: such a request is not read here.
func HandshakeOf(host string, values func(name string) []string) (h Handshake, ok bool) {
	upgrade, okUpgrade := single(values("Upgrade"))
	connection, okConnection := single(values("Connection"))
	version, okVersion := single(values("Sec-WebSocket-Version"))
	key, okKey := single(values("Sec-WebSocket-Key"))
	origin, okOrigin := single(values("Origin"))
	if !okUpgrade || !okConnection || !okVersion || !okKey || !okOrigin ||
		!strings.EqualFold(upgrade, "websocket") || !upgrades(connection) || version != "13" || key == "" {
		return Handshake{}, false
	}
	if _, err := url.ParseRequestURI(origin); err != nil {
		return Handshake{}, false
	}
	if _, err := url.ParseRequestURI("wss://" + host + "/"); err != nil {
		return Handshake{}, false
	}
	protocols := values("Sec-WebSocket-Protocol")
	if len(protocols) == 0 {
		return Handshake{key: key}, true
	}
	protocol, okProtocol := single(protocols)
	if !okProtocol || protocol != "" && !httpguts.ValidHeaderFieldName(protocol) || tokenProtocol(protocol) {
		return Handshake{}, false
	}
	return Handshake{key, protocol}, true
}

// tokenProtocol reports that a subprotocol is a bearer token (W-119). kube-apiserver does not name
// it in its answer.
func tokenProtocol(protocol string) bool {
	return strings.Contains(protocol, "bearer.authorization.k8s.io")
}

func single(values []string) (string, bool) {
	if len(values) != 1 {
		return "", false
	}
	return values[0], true
}

// upgrades reports that a Connection header says so, and nothing else but that the connection may
// stay open. Another name in it could be that of a header which identifies the sender.
func upgrades(connection string) bool {
	found := false
	for name := range strings.SplitSeq(connection, ",") {
		switch name = strings.TrimSpace(name); {
		case strings.EqualFold(name, "Upgrade"):
			found = true
		case !strings.EqualFold(name, "keep-alive"):
			return false
		}
	}
	return found
}

// Answer is the whole head of the answer that agrees. kube-apiserver sends no other header (W-119).
func (h Handshake) Answer() []byte {
	const guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	sum := sha1.Sum([]byte(h.key + guid)) // #nosec G401 -- RFC 6455 wants it, as a checksum
	head := []byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: ")
	head = base64.StdEncoding.AppendEncode(head, sum[:])
	if h.protocol != "" {
		head = append(append(head, "\r\nSec-WebSocket-Protocol: "...), h.protocol...)
	}
	return append(head, "\r\n\r\n"...)
}
