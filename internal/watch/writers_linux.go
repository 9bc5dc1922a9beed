//go:build !portable

package watch

// haveWriters reports that writers deliver watches: they need an epoll. With the build tag
// portable, the deliverer of other systems can be tested on Linux.
const haveWriters = true
