package exchange

import "net/http"

// Source is the server that answered.
type Source int

// An answer passed through, came from memory, or is an error of the proxy itself without a request
// upstream. Of a case with several answers each may be another's.
const (
	Upstream Source = iota
	Memory
	Refusal
	Various
)

func (s Source) String() string {
	return [...]string{"passed through", "from memory", "refused by the proxy itself", "variously"}[s]
}

// By is the server that answered. What was refused without the API server's having a part in it was
// refused by the proxy.
func (c *Comparison) By() Source {
	switch {
	case !c.FromMemory:
		return Upstream
	case c.Proxied.Status >= http.StatusBadRequest:
		return Refusal
	}
	return Memory
}
