package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

// event is one line of a watch, and what of it the comparison looks at.
type event struct {
	typ     string
	line    []byte
	kind    string
	name    string // namespace/name
	version uint64
	end     bool // a bookmark that ends the initial events
}

func isStream(body []byte) bool { return bytes.HasPrefix(body, []byte(`{"type":"`)) }

// splitEvents cuts the body of a watch into events. Whatever is not one stays visible as a line without type.
func splitEvents(body []byte) []event {
	var events []event
	for line := range bytes.Lines(body) {
		events = append(events, parseEvent(line))
	}
	return events
}

func parseEvent(line []byte) event {
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
	e := event{line: bytes.Clone(line)}
	if err := json.Unmarshal(line, &parsed); err != nil || line[len(line)-1] != '\n' {
		return e
	}
	meta := parsed.Object.Metadata
	e.typ, e.kind, e.version = parsed.Type, parsed.Object.Kind, number(meta.ResourceVersion)
	e.name = meta.Name
	if meta.Namespace != "" {
		e.name = meta.Namespace + "/" + meta.Name
	}
	e.end = e.typ == "BOOKMARK" && meta.Annotations["k8s.io/initial-events-end"] == "true"
	return e
}

// events compares two streams event for event. Of bookmarks, the one at the end of the initial events must stand in the same
// place; the others must keep what they promise.
func (c *comparison) events(direct, proxied []event) {
	c.promises("direct", direct)
	c.promises("proxied", proxied)
	template := bookmarkTemplate(direct)
	direct, proxied = c.withoutPeriodic(template, direct), c.withoutPeriodic(template, proxied)
	for i := range max(len(direct), len(proxied)) {
		switch {
		case i >= len(direct):
			c.differ(fmt.Sprintf("event %d", i), "(none)", clip(proxied[i].line))
			return
		case i >= len(proxied):
			c.differ(fmt.Sprintf("event %d", i), clip(direct[i].line), "(none)")
			return
		}
		if a, b := c.comparable(direct[i]), c.comparable(proxied[i]); !bytes.Equal(a, b) {
			c.differ(fmt.Sprintf("event %d", i), firstDifference(a, b), firstDifference(b, a))
			return
		}
	}
}

var oldest = regexp.MustCompile(`too old resource version: \d+ \((\d+)\)`)

// comparable is an event with the numbers blanked that are a matter of the moment.
func (c *comparison) comparable(e event) []byte {
	switch e.typ {
	case "ERROR":
		line := c.blankCurrent(e.line)
		return blank(line, oldest.FindSubmatchIndex(line), func(string) { c.deviate(DevOldest) })
	case "BOOKMARK":
		return blank(e.line, versionJSON.FindSubmatchIndex(e.line), func(string) { c.deviate(NormBookmarkVersion) })
	}
	return e.line
}

// bookmarkTemplate is a bookmark of the apiserver without its number and without the mark at the end of the initial events.
func bookmarkTemplate(direct []event) []byte {
	for _, e := range direct {
		if e.typ == "BOOKMARK" && !e.end {
			return blank(e.line, versionJSON.FindSubmatchIndex(e.line), func(string) {})
		}
	}
	return nil
}

// withoutPeriodic takes out the bookmarks after the initial events: they come when they come. They must look like upstream's.
func (c *comparison) withoutPeriodic(template []byte, events []event) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool {
		if e.typ != "BOOKMARK" || e.end {
			return false
		}
		c.deviate(DevBookmarkTiming)
		if line := c.comparable(e); template != nil && !bytes.Equal(line, template) {
			c.differ("a bookmark", string(template), string(line))
		}
		return true
	})
}

// promises checks what every watch promises by itself: after the initial events resourceVersions rise, a bookmark is not below
// any event before it, and no event after it is at or below it (W-105, W-111).
func (c *comparison) promises(who string, events []event) {
	live := c.askedVersion() > 0 && c.query().Get("sendInitialEvents") == ""
	var reached, promised uint64
	for i, e := range events {
		fail := func(why string) {
			c.problems = append(c.problems, fmt.Sprintf("%s: event %d %s: %s", who, i, why, clip(e.line)))
		}
		switch {
		case e.typ == "":
			fail("is no event")
		case e.typ == "ERROR" && i < len(events)-1:
			fail("is an error, but not the last event")
		case e.typ == "ERROR":
		case e.typ == "BOOKMARK":
			if e.version < reached || e.version < promised || e.version < c.askedVersion() {
				fail("promises too little")
			}
			promised = e.version
			live = live || e.end
		case e.version <= promised:
			fail("is older than a bookmark before it")
		case live && e.version <= reached:
			fail("is not newer than the event before it")
		}
		if e.typ != "ERROR" {
			reached = max(reached, e.version)
		}
	}
}
