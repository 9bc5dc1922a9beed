//go:build !portable

package watch

// writersSupported reports that this build has writers, which need an epoll. A manager uses them
// unless Options.Goroutines is set. Streams with a heavy selector, and those whose sink has no
// port, have a goroutine in any case.
//
// The build tag portable leaves writers out. With it, tests on Linux cover the delivery of other
// systems.
const writersSupported = true
