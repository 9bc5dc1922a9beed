package serve

import "unique"

// client is who a watch is for, as operators are told: never a metric label (design D16). Interned, since most watches are those of a few.
type client struct{ user, agent unique.Handle[string] }

// agentMost is how much is kept of what a client says that it is: a head may hold a megabyte.
const agentMost = 256

// newClient is a client by the name of its user, "" if that was not asked for, and by what it says that it is.
func newClient(user, agent string) client {
	return client{user: unique.Make(user), agent: unique.Make(agent[:min(len(agent), agentMost)])}
}

// name and userAgent are "" of a client that was never said to be anybody.
func (c client) name() string      { return valueOf(c.user) }
func (c client) userAgent() string { return valueOf(c.agent) }

func valueOf(h unique.Handle[string]) string {
	if h == (unique.Handle[string]{}) {
		return ""
	}
	return h.Value()
}
