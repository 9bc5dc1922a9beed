package plan

import (
	"net/url"
	"strings"
	"time"
)

// Request is what a plan looks at: the raw request, unparsed where parsing could differ from
// upstream's (W-24, W-250).
type Request struct {
	Method   string
	Path     string // as sent, percent escapes and all
	RawQuery string
	// Accept and AcceptEncoding are the first header of the name: upstream reads no other.
	Accept         string
	AcceptEncoding string
	UserAgent      string
	// Plain says that the request is nothing but its head, in HTTP/1.1 or 2, and asks for no other
	// protocol than what WebSocket says. All others go upstream.
	Plain bool
	// WebSocket says that a watch is to be sent over a WebSocket, whose handshake upstream would agree
	// to (W-119). Requests for anything else over one go upstream.
	WebSocket bool
}

// QueryParametersLimit is how many parameters a query may have that is read here and answered by
// it. Go's net/url reads none of more than 10,000, older ones all of them, and
// GODEBUG=urlmaxqueryparams sets any number: of a query that is far below all of these, every party
// reads the same.
const QueryParametersLimit = 1000

// Overfull reports that two parties may read different parameters in a raw query.
func Overfull(query string) bool { return strings.Count(query, "&") >= QueryParametersLimit }

// Query reads the parameters with Go's own code, which drops what upstream drops (W-24).
func (r Request) Query() url.Values {
	query, _ := url.ParseQuery(r.RawQuery)
	return query
}

// queryBool reads a boolean as upstream does: absent, "0" and "false" are false, everything else is
// true (W-25).
func queryBool(query url.Values, name string) bool {
	text := query.Get(name)
	return query.Has(name) && text != "0" && !strings.EqualFold(text, "false")
}

// queryTimeout reads how long the client gives a request that is not a watch; 0 is as long as
// upstream likes (W-28).
func queryTimeout(query url.Values) (time.Duration, error) {
	text := query.Get("timeout")
	if text == "" {
		return 0, nil
	}
	return time.ParseDuration(text)
}
