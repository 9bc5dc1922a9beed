package watch

import "unique"

// ClientInfo names the client of a watch for operators; it is never a metric label (design D16).
// Interned, because most watches are those of a few.
type ClientInfo struct{ user, agent unique.Handle[string] }

// userAgentBytesLimit is how many bytes of a User-Agent header are kept: a head may hold a
// megabyte.
const userAgentBytesLimit = 256

// NewClient makes a ClientInfo of the name of a user, "" if requests are not authenticated, and of
// a User-Agent header.
func NewClient(user, agent string) ClientInfo {
	return ClientInfo{user: unique.Make(user), agent: unique.Make(agent[:min(len(agent), userAgentBytesLimit)])}
}

// name and userAgent are "" of a client that was not named.
func (c ClientInfo) name() string      { return valueOf(c.user) }
func (c ClientInfo) userAgent() string { return valueOf(c.agent) }

func valueOf(h unique.Handle[string]) string {
	if h == (unique.Handle[string]{}) {
		return ""
	}
	return h.Value()
}
