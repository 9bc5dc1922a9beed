package serve

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"path"
	"strings"
)

// The values of resourceVersionMatch.
const (
	matchExact        = "Exact"
	matchNotOlderThan = "NotOlderThan"
)

// planList plans a LIST by the table of W-63. What that table calls "most recent" goes upstream: to prove the cache fresh
// takes longer than upstream's own answer, unless somebody is waiting for a proof anyway (design D7).
func planList(s *Source, t target, query url.Values) Plan {
	sel, ok := selector(s.Resource().Info, t, query)
	limit, okLimit := queryInt(query, "limit")
	_, okTimeout := queryInt(query, "timeoutSeconds")
	if !ok || !okLimit || !okTimeout || query.Has("sendInitialEvents") {
		return Plan{}
	}
	list, ok := listState(query, max(limit, 0), t.namespace, sel.Name != "" && (t.namespace != "" || !s.Resource().Info.Namespaced))
	if !ok {
		return Plan{}
	}
	return Plan{Action: FromCache, Source: s, Selector: sel, List: list}
}

// listState is which state a LIST asks for, or false if upstream must answer. single says that it can find one key at most:
// there a limit does not make the resourceVersion an exact one.
func listState(query url.Values, limit int64, namespace string, single bool) (*ListPlan, bool) {
	text, match, token := query.Get("resourceVersion"), query.Get("resourceVersionMatch"), query.Get("continue")
	rv, ok := parseRV(text)
	switch {
	case !ok:
		return nil, false
	case token != "":
		if match != "" || text != "" { // with "0" upstream takes the token and ignores the limit
			return nil, false
		}
		return continued(token, limit, namespace)
	case text == "":
		return nil, false
	case rv == 0 && (match == "" || match == matchNotOlderThan):
		return &ListPlan{}, true // any state; the limit is not honoured
	case rv == 0:
		return nil, false
	case match == matchExact, match == "" && limit > 0 && !single:
		return &ListPlan{RV: rv, Exact: true, Limit: limit}, true
	case match == "", match == matchNotOlderThan:
		return &ListPlan{RV: rv, Limit: limit}, true
	}
	return nil, false
}

// continueToken is W-80.
type continueToken struct {
	Version string `json:"v"`
	RV      int64  `json:"rv"`
	Start   string `json:"start"`
}

const tokenVersion = "meta.k8s.io/v1"

// continued is the rest of a list at the token's resourceVersion. The start key is the client's word: it only says where in
// the request's own scope to begin, and can never widen it (W-81, W-82).
func continued(token string, limit int64, namespace string) (*ListPlan, bool) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return nil, false
	}
	var c continueToken
	if err := json.Unmarshal(text, &c); err != nil || c.Version != tokenVersion || c.RV <= 0 || c.Start == "" {
		return nil, false
	}
	start := strings.TrimPrefix(c.Start, "/")
	if cleaned := path.Clean("/" + start); cleaned != "/"+start {
		return nil, false
	}
	if namespace != "" {
		start = namespace + "/" + start
	}
	return &ListPlan{RV: uint64(c.RV), Exact: true, Limit: limit, Start: start}, true
}

// encodeContinue makes the token of the page after last, a key relative to the request's scope (W-80).
func encodeContinue(rv uint64, last string) string {
	text, err := json.Marshal(continueToken{Version: tokenVersion, RV: int64(rv), Start: "/" + last + "\x00"})
	if err != nil { // a struct of strings and a number always encodes
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
