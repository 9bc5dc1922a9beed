package exchange

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Release is a kube-apiserver by what its answers depend on.
type Release struct {
	Minor int             // 33 of 1.33.13
	Gates map[string]bool // those that are not at their default
}

// enabledSince are the minors in which a feature gate became true by default, false, true again.
var enabledSince = map[string][]int{
	"WatchList":               {32, 33, 34},
	"WatchListCompression":    {37},
	"ConsistentListFromCache": {31},
	"ListFromCacheSnapshot":   {34},
}

// Enabled reports that a feature gate is on, or that its feature needs no gate any more.
func (r Release) Enabled(gate string) bool {
	if on, given := r.Gates[gate]; given {
		return on
	}
	on := false
	for _, minor := range enabledSince[gate] {
		if r.Minor >= minor {
			on = !on
		}
	}
	return on
}

func (r Release) String() string {
	text := fmt.Sprintf("1.%d", r.Minor)
	for _, gate := range slices.Sorted(maps.Keys(r.Gates)) {
		text += fmt.Sprintf(" %s=%t", gate, r.Gates[gate])
	}
	return text
}

// Skew is a kube-apiserver that is not the newest, or has other feature gates, and the newest
// beside it on the same etcd. Spillway's semantics are the newest's, its encodings those of its
// upstream: an answer that is not the older API server's must be the newest's, for a reason that
// the table of deviations names. A nil Skew explains nothing.
type Skew struct {
	Release Release
	// Mixed says that the proxy's upstream is both, so that the newest's answer needs no name.
	Mixed  bool
	newest [2]*Endpoint // in HTTP/1.1 and HTTP/2
}

// NewSkew compares with the newest kube-apiserver at an endpoint.
func NewSkew(release Release, newest *Endpoint) *Skew {
	return &Skew{Release: release, newest: [2]*Endpoint{newest, newest.OverHTTP2()}}
}

// Explain sends the request of a comparison that found problems to the newest API server. If its
// answer is the proxy's, and a deviation names the difference, the comparison has no problems any
// more.
func (s *Skew) Explain(ctx context.Context, c *Comparison) error {
	if s == nil || len(c.Problems) == 0 {
		return nil
	}
	if s.encodings(c) || c.endOnly(s.Release) {
		return nil
	}
	outOfTime := c.OutOfTime()
	ctx, cancel := context.WithTimeout(ctx, newestPatience) // it may serve what the older one refuses, for long
	defer cancel()
	again, err := s.compare(ctx, c, c.Request)
	if err == nil && again.OtherFormat {
		r := c.Request
		r.Header = maps.Clone(r.Header)
		r.Header["Accept"] = "application/json"
		again, err = s.compare(ctx, c, r)
	}
	if err != nil {
		return err
	}
	if len(again.Problems) > 0 {
		c.late = outOfTime || again.OutOfTime()
		c.Problems = append(c.Problems, "nor is it the answer of the newest API server: "+strings.Join(again.Problems, "; "))
		return nil
	}
	s.name(c, again.Direct)
	c.late = outOfTime && len(c.Problems) > 0
	return nil
}

func (s *Skew) compare(ctx context.Context, c *Comparison, r Request) (*Comparison, error) {
	e := s.newest[0]
	if c.Direct.Proto == "HTTP/2.0" {
		e = s.newest[1]
	}
	for tries := 1; ; tries++ {
		answer, err := e.Do(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("the newest API server: %w", err)
		}
		if answer.Status == http.StatusTooManyRequests && tries < readyTries { // its watch cache has just begun
			time.Sleep(readyPause)
			continue
		}
		return s.compareWith(c, r, answer), nil
	}
}

// readyTries and readyPause bound how long the newest API server may take to fill a watch cache.
const (
	newestPatience = 30 * time.Second
	readyTries     = 50
	readyPause     = 200 * time.Millisecond
)

// endOnly reports that an API server without watch-lists sent the same events, but for the bookmark
// at the end of the initial ones. The newest API server shows no more than that: its objects may
// have fields that the older one does not know.
func (c *Comparison) endOnly(r Release) bool {
	q := c.query()
	if r.Enabled("WatchList") || q.Get("sendInitialEvents") != "" || Number(q.Get("resourceVersion")) != 0 {
		return false
	}
	direct, err := c.Direct.readable()
	if err != nil || !isStream(direct) && len(direct) > 0 {
		return false
	}
	proxied, err := c.Proxied.readable()
	if err != nil || !isStream(proxied) {
		return false
	}
	var heard []byte
	for _, e := range SplitEvents(proxied) {
		if !e.End {
			heard = append(heard, e.Line...)
		}
	}
	told := *c.Direct
	told.Body, told.text = direct, true
	without := *c.Proxied
	without.Body, without.text = heard, true
	if again := Compare(c.tally, c.Request, told.normal(), without.normal()); len(again.Problems) > 0 {
		return false
	}
	c.tally.Deviated(DevWatchList)
	c.Problems, c.Deviation = nil, DevWatchList
	return true
}

// compareWith compares an answer of the newest API server with the proxy's, apart from what is in
// the older one's encoding.
func (s *Skew) compareWith(c *Comparison, r Request, newest *Answer) *Comparison {
	mayCompress := s.Release.Enabled("WatchList") && s.Release.Enabled("WatchListCompression") ||
		s.Mixed && c.Proxied.Header.Get("Content-Encoding") != ""
	if c.longLived() && !mayCompress {
		newest.Header.Del("Content-Encoding")
		newest.Header.Del("Vary")
	}
	if own, given := c.Proxied.Header["Warning"]; given {
		newest.Header["Warning"] = own // of deprecated resources, in the older one's words
	} else {
		newest.Header.Del("Warning")
	}
	return Compare(c.tally, r, newest.normal(), c.Proxied.normal())
}

// encodings reports that the older API server sent the same in the encoding of its release, whose
// objects may lack fields that the newest shows.
func (s *Skew) encodings(c *Comparison) bool {
	if again := Compare(c.tally, c.Request, c.Direct.normal(blueprint), c.Proxied.normal()); len(again.Problems) > 0 {
		return false
	}
	for _, d := range Deviations {
		if d.encoding && d.in(s.Release) && d.older(c) {
			c.tally.Deviated(d.ID)
			c.Problems, c.Deviation = nil, d.ID
			return true
		}
	}
	return false
}

var (
	// Older API servers write an empty time into bookmarks and into the templates of pods.
	emptyTime = regexp.MustCompile(`"creationTimestamp": ?null,\s*|,\s*"creationTimestamp": ?null|` +
		`"creationTimestamp": ?null|(?m)^ *creationTimestamp: null\n`)
	// blueprint is an empty list in the bookmark at the end of the initial events. The proxy sends
	// none.
	blueprint = regexp.MustCompile(`,\s*"kubernetes\.io/initial-events-list-blueprint": ?"[^"]*"`)
)

// normal is an answer without what the encodings of two releases differ in: empty times, the slash
// at the start of what a continue token names, and what else matches a pattern.
func (a *Answer) normal(without ...*regexp.Regexp) *Answer {
	text, err := a.readable()
	if err != nil {
		return a // the comparison says why
	}
	changed := emptyTime.ReplaceAll(text, nil)
	for _, pattern := range without {
		changed = pattern.ReplaceAll(changed, nil)
	}
	changed = tokenText.ReplaceAllFunc(changed, func(match []byte) []byte {
		written := string(tokenText.FindSubmatch(match)[1])
		token, err := DecodeToken(written)
		if err != nil {
			return match
		}
		return bytes.Replace(match, []byte(written), []byte(EncodeToken(token.RV, strings.TrimPrefix(token.Start, "/"))), 1)
	})
	if bytes.Equal(changed, text) {
		return a
	}
	normal := *a
	normal.Body, normal.text = changed, true
	return &normal
}

// Recompare compares again where the direct answer is the newest API server's.
func (s *Skew) Recompare(c *Comparison) { c.Problems = s.compareWith(c, c.Request, c.Direct).Problems }

// name finds the deviation of a proxied answer that is the newest API server's.
func (s *Skew) name(c *Comparison, newest *Answer) {
	if c.Newest = newest; s.Mixed {
		c.Problems = nil
		return
	}
	for _, d := range Deviations {
		if d.older != nil && d.in(s.Release) && d.older(c) {
			c.tally.Deviated(d.ID)
			c.Problems, c.Deviation = nil, d.ID
			return
		}
	}
	c.Problems = append(c.Problems, "it is the answer of the newest API server, and no deviation of "+s.Release.String()+
		" names the difference")
}

// watchList reports that the newest API server ends the initial events of a request with a
// bookmark.
func (c *Comparison) watchList() bool {
	q := c.query()
	return q.Get("sendInitialEvents") != "" || c.longLived() && Number(q.Get("resourceVersion")) == 0
}

// oneOfAll reports that a watch of all namespaces selects one name, and that its direct answer has
// no object.
func (c *Comparison) oneOfAll() bool {
	return c.longLived() && strings.Contains(c.query().Get("fieldSelector"), "metadata.name=") &&
		!contains(c.Direct, `"ADDED"`) && contains(c.Proxied, `"ADDED"`)
}

// tokensDiffer reports that the two answers are the same but for their continue tokens.
func (c *Comparison) tokensDiffer() bool {
	direct, err := c.Direct.readable()
	if err != nil {
		return false
	}
	proxied, err := c.Proxied.readable()
	if err != nil || tokenText.Find(proxied) == nil || tokenText.Find(direct) == nil {
		return false
	}
	without := func(b []byte) []byte {
		return tokenText.ReplaceAll(c.withoutVersion(b), nil)
	}
	return bytes.Equal(without(direct), without(proxied))
}

// withoutVersion blanks the version of a list that has no exact one.
func (c *Comparison) withoutVersion(b []byte) []byte {
	if c.exact() || !isList(b) {
		return b
	}
	return versionYAML.ReplaceAll(versionJSON.ReplaceAll(b, nil), nil)
}

// refused reports that one of the two API servers, or both, sends an error.
func (c *Comparison) refused() bool {
	return c.Direct.Status >= http.StatusBadRequest || c.Newest.Status >= http.StatusBadRequest
}

// contains reports that the readable body of an answer contains some text.
func contains(a *Answer, text string) bool {
	body, err := a.readable()
	return err == nil && bytes.Contains(body, []byte(text))
}
