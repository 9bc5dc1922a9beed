package watchstart

import (
	"fmt"
	"strings"
)

// beginning is where in history a watch begins (W-100).
type beginning struct {
	name  string
	query string // ${now} is the version of the last write, ${past} that of an earlier one
	place place
	watch bool // the verb is in the path: /api/v1/watch/…
}

// place is what a watch sends of the time up to its head.
type place int

const (
	state  place = iota // the objects, as ADDED
	events              // each event since a version
	now                 // nothing, or the last few events
)

const (
	initial   = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	noInitial = "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
)

var beginnings = []beginning{
	{name: "most recent", place: state},
	{name: "any age", query: "&resourceVersion=0", place: state},
	{name: "from a version", query: "&resourceVersion=${now}", place: events},
	{name: "resumed", query: "&resourceVersion=${past}", place: events},
	{name: "watch-list", query: initial, place: state},
	{name: "watch-list of any age", query: initial + "&resourceVersion=0", place: state},
	{name: "watch-list not older than a version", query: initial + "&resourceVersion=${now}", place: state},
	{name: "no state, from now", query: noInitial, place: now},
	{name: "no state, from any time", query: noInitial + "&resourceVersion=0", place: now},
	{name: "no state, from a version", query: noInitial + "&resourceVersion=${now}", place: events},
	{name: "watch in the path", place: state, watch: true},
	{name: "watch in the path, any age", query: "&resourceVersion=0", place: state, watch: true},
}

// selection is what of the objects a watch sees. ${worker} is a label's value that the objects of
// one worker have, ${name} the name of the object that is written.
type selection struct {
	name  string
	query string
	all   bool // of all namespaces
	label bool // by the label: what is relabelled leaves
	one   bool // the object ${name} alone
}

var selections = []selection{
	{name: "all"},
	{name: "by label", query: "&labelSelector=worker%3D${worker}", label: true},
	{name: "by field", query: "&fieldSelector=metadata.name%3D${name}", one: true},
	{name: "by label and field", query: "&labelSelector=worker%3D${worker}&fieldSelector=metadata.name%3D${name}",
		label: true, one: true},
	{name: "of all namespaces by label", query: "&labelSelector=worker%3D${worker}", all: true, label: true},
}

// format is how events are encoded, and over what they travel.
type format struct {
	name      string
	accept    string
	gzip      bool
	webSocket bool
	http2     bool
}

const (
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf"
	asMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

var formats = []format{
	{name: "JSON", accept: asJSON},
	{name: "gzip", accept: asJSON, gzip: true},
	{name: "protobuf", accept: asProtobuf},
	{name: "metadata", accept: asMetadata},
	{name: "JSON over HTTP/2", accept: asJSON, http2: true},
	{name: "gzip over HTTP/2", accept: asJSON, gzip: true, http2: true},
	{name: "protobuf over HTTP/2", accept: asProtobuf, http2: true},
	{name: "WebSocket", accept: asJSON, webSocket: true},
	{name: "protobuf over a WebSocket", accept: asProtobuf, webSocket: true},
}

// start is one way to start a watch.
type start struct {
	beginning
	selection
	format
	bookmarks bool
	limit     bool // a limit, which a watch ignores
}

func (s start) String() string {
	return fmt.Sprintf("%s, %s, %s, bookmarks: %t, limit: %t", s.beginning.name, s.selection.name, s.format.name,
		s.bookmarks, s.limit)
}

// ends reports that a bookmark says where the initial events end.
func (s start) ends() bool { return s.place == state && s.bookmarks && !s.watch }

// target is the path and query of the watch of a worker.
func (s start) target(w *worker, name string) string {
	path := "/api/v1/"
	if s.watch {
		path += "watch/"
	}
	if !s.all {
		path += "namespaces/" + w.namespace + "/"
	}
	query := "timeoutSeconds=300" + s.beginning.query + s.selection.query
	if !s.watch {
		query += "&watch=true"
	}
	if s.bookmarks {
		query += "&allowWatchBookmarks=true"
	}
	if s.limit {
		query += "&limit=1"
	}
	fill := strings.NewReplacer("${now}", fmt.Sprint(w.now()), "${past}", fmt.Sprint(w.past), "${worker}", w.namespace,
		"${name}", name)
	return path + "configmaps?" + fill.Replace(query)
}

// starts are all ways to start a watch.
func starts() (all []start) {
	for _, b := range beginnings {
		for _, s := range selections {
			for _, f := range formats {
				for _, bookmarks := range []bool{false, true} {
					for _, limit := range []bool{false, true} {
						all = append(all, start{b, s, f, bookmarks, limit})
					}
				}
			}
		}
	}
	return all
}
