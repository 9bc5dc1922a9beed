package clientconn

import "time"

// ReadTimeouts are how long a client may take for what it sends, in all and however it is cut into
// pieces.
type ReadTimeouts struct {
	Head  time.Duration // a TLS handshake, and then a request's head
	Owned time.Duration // a body that is small enough to be read before it is sent on
	// Passed is for a larger body of a request that has one answer, and for any body of an upgrade.
	// What else lasts (a proxied upload) may take as long as it likes.
	Passed time.Duration
}

// DefaultReadTimeouts are kube-apiserver's: 32 s for a head, and its --request-timeout of 60 s for
// a request. What passes through has a little more, so that the API server says in its own words
// that this took too long.
var DefaultReadTimeouts = ReadTimeouts{Head: 32 * time.Second, Owned: time.Minute, Passed: 75 * time.Second}
