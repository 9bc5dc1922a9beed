//go:build !linux

package serve

// WritersSupported says that a few writers can serve all watches here.
const WritersSupported = false

// sender makes the sends of one writer. Here there are none: nobody says when a socket that was full has room.
type sender struct{}

func newSender() *sender { return nil }

func openSocket(*connSink, *sender) outlet { return nil }
