package watch

import "unique"

// Client is who a watch is for, as operators are told: never a metric label (design D16). Interned,
// since most watches are those of a few.
type Client struct{ user, agent unique.Handle[string] }

// agentMost is how much is kept of what a client says that it is: a head may hold a megabyte.
const agentMost = 256

// NewClient is a client by the name of its user, "" if that was not asked for, and by what it says
// that it is.
func NewClient(user, agent string) Client {
	return Client{user: unique.Make(user), agent: unique.Make(agent[:min(len(agent), agentMost)])}
}

// name and userAgent are "" of a client that was never said to be anybody.
func (c Client) name() string      { return valueOf(c.user) }
func (c Client) userAgent() string { return valueOf(c.agent) }

func valueOf(h unique.Handle[string]) string {
	if h == (unique.Handle[string]{}) {
		return ""
	}
	return h.Value()
}
