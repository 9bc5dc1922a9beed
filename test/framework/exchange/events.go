package exchange

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Event is one line of a watch, and what of it the comparison looks at.
type Event struct {
	Type    string
	Line    []byte
	Kind    string
	Name    string // namespace/name
	Version uint64
	End     bool // a bookmark that ends the initial events
}

func isStream(body []byte) bool { return bytes.HasPrefix(body, []byte(`{"type":"`)) }

// SplitEvents cuts the body of a watch into events. Whatever is not one stays visible as a line
// without type.
func SplitEvents(body []byte) []Event {
	var events []Event
	for line := range bytes.Lines(body) {
		events = append(events, ParseEvent(line))
	}
	return events
}

// Events are the events of a watch in whatever format.
func (a *Answer) Events() ([]Event, error) {
	text, err := a.readable()
	if err != nil {
		return nil, err
	}
	return SplitEvents(text), nil
}

// ParseEvent reads one line, which need not be an event.
func ParseEvent(line []byte) Event {
	var parsed struct {
		Type   string
		Object struct {
			Kind     string
			Metadata struct {
				Namespace, Name, ResourceVersion string
				Annotations                      map[string]string
			}
		}
	}
	e := Event{Line: bytes.Clone(line)}
	if err := json.Unmarshal(line, &parsed); err != nil || line[len(line)-1] != '\n' {
		return e
	}
	meta := parsed.Object.Metadata
	e.Type, e.Kind, e.Version = parsed.Type, parsed.Object.Kind, Number(meta.ResourceVersion)
	e.Name = meta.Name
	if meta.Namespace != "" {
		e.Name = meta.Namespace + "/" + meta.Name
	}
	e.End = e.Type == "BOOKMARK" && meta.Annotations["k8s.io/initial-events-end"] == "true"
	return e
}

// CompareEvents compares what two watches by r received. Heads and ends of the streams are not
// looked at.
func CompareEvents(y *Tally, r Request, direct, proxied []Event) *Comparison {
	c := &Comparison{Request: r, tally: y}
	c.events(direct, proxied)
	return c
}

// events compares two streams event for event. Of bookmarks, the one at the end of the initial
// events must stand in the same place; the others must keep what they promise.
func (c *Comparison) events(direct, proxied []Event) {
	c.promises("direct", direct)
	c.promises("proxied", proxied)
	template := bookmarkTemplate(direct)
	direct, proxied = c.withoutPeriodic(template, direct), c.withoutPeriodic(template, proxied)
	for i := range max(len(direct), len(proxied)) {
		switch {
		case i >= len(direct) && c.isOptionalError(proxied[i:]):
			c.deviate(NormClocked)
			return
		case i >= len(direct):
			c.less = c.Direct
			c.differ(fmt.Sprintf("event %d", i), "(none)", Clip(proxied[i].Line))
			return
		case i >= len(proxied):
			c.less = c.Proxied
			c.differ(fmt.Sprintf("event %d", i), Clip(direct[i].Line), "(none)")
			return
		}
		if a, b := c.comparable(direct[i]), c.comparable(proxied[i]); !bytes.Equal(a, b) {
			c.differ(fmt.Sprintf("event %d", i), FirstDifference(a, b), FirstDifference(b, a))
			return
		}
	}
}

// isOptionalError reports the ERROR event at the end of a watch from a future resourceVersion that
// lasts at most three seconds. The API server then sends that event or not, by the user's flow
// schema and by chance (W-106).
func (c *Comparison) isOptionalError(rest []Event) bool {
	seconds, err := strconv.Atoi(c.query().Get("timeoutSeconds"))
	return len(rest) == 1 && rest[0].Type == "ERROR" && err == nil && 0 < seconds && seconds <= 3 &&
		bytes.Contains(rest[0].Line, []byte(`"reason":"ResourceVersionTooLarge"`))
}

// shortest is what a watch lasts at most to be one that a busy server may not find the time for, in
// seconds.
const shortest = 2

// OutOfTime reports that one of the two delivered the same as the other, but not all of it when the
// time of a short watch was up: the API server, or the proxy, which may need an answer of the
// API server first. That is a difference like any other, unless the next answers are equal.
func (c *Comparison) OutOfTime() bool {
	if c.late {
		return true
	}
	if c.less == nil || len(c.Problems) != 1 {
		return false
	}
	seconds, err := strconv.Atoi(c.query().Get("timeoutSeconds"))
	return err == nil && 0 < seconds && seconds <= shortest && c.less.Took >= time.Duration(seconds)*time.Second
}

// Oldest finds what a 410 says one may start from (W-107).
var Oldest = regexp.MustCompile(`too old resource version: \d+ \((\d+)\)`)

// comparable is an event with the numbers blanked that are a matter of the moment.
func (c *Comparison) comparable(e Event) []byte {
	switch e.Type {
	case "ERROR":
		line := c.blankCurrent(e.Line)
		return blank(line, Oldest.FindSubmatchIndex(line), func(string) { c.deviate(DevOldest) })
	case "BOOKMARK":
		return blank(e.Line, versionJSON.FindSubmatchIndex(e.Line), func(string) { c.deviate(NormBookmarkVersion) })
	}
	return e.Line
}

// bookmarkTemplate is a bookmark of the API server without its number and without the mark at the
// end of the initial events.
func bookmarkTemplate(direct []Event) []byte {
	for _, e := range direct {
		if e.Type == "BOOKMARK" && !e.End {
			return blank(e.Line, versionJSON.FindSubmatchIndex(e.Line), func(string) {})
		}
	}
	return nil
}

// withoutPeriodic takes out the bookmarks after the initial events: they come when they come. They
// must look like upstream's.
func (c *Comparison) withoutPeriodic(template []byte, events []Event) []Event {
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool {
		if e.Type != "BOOKMARK" || e.End {
			return false
		}
		c.deviate(DevBookmarkTiming)
		if line := c.comparable(e); template != nil && !bytes.Equal(line, template) {
			c.differ("a bookmark", string(template), string(line))
		}
		return true
	})
}

// promises checks what every watch promises by itself: after the initial events resourceVersions
// rise, a bookmark is not below any event before it, and no event after it is at or below it
// (W-105, W-111).
func (c *Comparison) promises(who string, events []Event) {
	live := c.askedVersion() > 0 && !c.query().Has("sendInitialEvents")
	var reached, promised uint64
	for i, e := range events {
		fail := func(why string) {
			c.Problems = append(c.Problems, fmt.Sprintf("%s: event %d %s: %s", who, i, why, Clip(e.Line)))
		}
		switch {
		case e.Type == "":
			fail("is no event")
		case e.Type == "ERROR" && i < len(events)-1:
			fail("is an error, but not the last event")
		case e.Type == "ERROR":
		case e.Type == "BOOKMARK":
			if e.Version < reached || e.Version < promised || e.Version < c.askedVersion() {
				fail("promises too little")
			}
			promised = e.Version
			live = live || e.End
		case e.Version <= promised:
			fail("is older than a bookmark before it")
		case live && e.Version <= reached:
			fail("is not newer than the event before it")
		}
		if e.Type != "ERROR" {
			reached = max(reached, e.Version)
		}
	}
}
