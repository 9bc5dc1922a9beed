package serve

import "runtime"

// readers bound how many long queries are read at the same time: a selector of a megabyte keeps a
// processor busy for a tenth of a second, and is read before it is known whether it is too much.
type readers chan struct{}

// longQuery is how many bytes of query are long.
const longQuery = 16 << 10

func newReaders() readers { return make(readers, max(1, runtime.GOMAXPROCS(0)/2)) }

// read calls f, in its turn if the query is long.
func (r readers) read(query string, f func()) {
	if len(query) > longQuery {
		r <- struct{}{}
		defer func() { <-r }()
	}
	f()
}
