package status

import (
	"cmp"
	"strings"
	"time"
)

// none is what stands where there is nothing to tell.
const none = "–"

// watchColumns are the table of watches. What tells the most comes first: a narrow screen shows no
// more.
var watchColumns = []column[*Watch]{
	words("user", "User", "the client as the API server knows it; – without authentication", func(w *Watch) string {
		return orNone(w.User)
	}),
	{
		key: "lag", name: "Lag", help: "for how long something has waited for the client", number: true,
		compare: func(a, b *Watch) int {
			return cmp.Or(cmp.Compare(a.LagSeconds, b.LagSeconds), cmp.Compare(a.LagEvents, b.LagEvents),
				cmp.Compare(a.UnsentBytes, b.UnsentBytes))
		},
		cell: func(w *Watch) Cell { return Cell{Text: ageOf(w.LagSeconds), Alert: w.LagSeconds >= lagAlert} },
	},
	figures("behind", "Behind", "entries of history that are still to be sent", func(w *Watch) uint64 {
		return w.LagEvents
	},
		func(w *Watch) Cell { return Cell{Text: orZero(w.LagEvents)} }),
	figures("rate", "Rate", "bytes sent per second, lately", func(w *Watch) float64 { return w.BytesPerSecond },
		func(w *Watch) Cell { return Cell{Text: rateOf(w.BytesPerSecond)} }),
	words("resource", "Resource", "what is watched", func(w *Watch) string { return w.Resource }),
	words("selector", "Selector", "namespace, name, labels and fields that are watched", func(w *Watch) string {
		return selectorOf(w.Namespace, w.Name, w.LabelSelector, w.FieldSelector)
	}),
	words("agent", "User agent", "what the client says that it is", func(w *Watch) string { return orNone(w.UserAgent) }),
	{
		key: "state", name: "State",
		help:    "starting, live, held until the API server can review it, or blocked since the client takes nothing",
		compare: func(a, b *Watch) int { return cmp.Compare(stateOf(a), stateOf(b)) },
		cell:    func(w *Watch) Cell { return Cell{Text: stateOf(w), Alert: w.blocked() || w.Phase == "held"} },
	},
	figures("sent", "Sent", "bytes of events", func(w *Watch) int64 { return w.Bytes }, func(w *Watch) Cell {
		return Cell{Text: Bytes(float64(w.Bytes))}
	}),
	figures("age", "Age", "since the watch began", func(w *Watch) float64 { return w.AgeSeconds }, func(w *Watch) Cell {
		return Cell{Text: Seconds(w.AgeSeconds)}
	}),
	{
		key: "event", name: "Last event",
		help: "when the last event that was sent happened, UTC; – where history does not reach back to it", number: true,
		compare: func(a, b *Watch) int { return timeOf(a.LastEvent).Compare(timeOf(b.LastEvent)) },
		cell:    func(w *Watch) Cell { return Cell{Text: clockOf(w.LastEvent)} },
	},
	words("protocol", "Protocol", "of the connection", func(w *Watch) string { return w.Protocol }),
	words("encoding", "Encoding", "of events", func(w *Watch) string { return w.Encoding }),
	words("peer", "Peer", "the client's address", func(w *Watch) string { return w.Peer }),
	figures("id", "ID", "of no other watch of this process", func(w *Watch) uint64 { return w.ID }, func(w *Watch) Cell {
		return Cell{Text: Count(w.ID)}
	}),
}

// lagAlert is from how many seconds on a lag is highlighted.
const lagAlert = 5

// resourceColumns are the table of what is mirrored.
var resourceColumns = []column[*Resource]{
	words("resource", "Resource", "what is mirrored, with its group", func(r *Resource) string { return r.Resource }),
	{
		key: "state", name: "State",
		help: "current; starting, resuming, refused (its requests pass through), falling back to LIST and WATCH, or how " +
			"old it is",
		compare: func(a, b *Resource) int { return cmp.Compare(healthOf(a), healthOf(b)) },
		cell: func(r *Resource) Cell {
			return Cell{Text: healthOf(r), More: cmp.Or(r.StateCause, r.Error), Alert: healthOf(r) != current}
		},
	},
	figures("objects", "Objects", "in memory", func(r *Resource) int { return r.Objects }, func(r *Resource) Cell {
		return Cell{Text: Count(r.Objects)}
	}),
	figures("bytes", "Bytes", "of their JSON", func(r *Resource) int64 { return r.ObjectBytes }, func(r *Resource) Cell {
		return Cell{Text: Bytes(float64(r.ObjectBytes))}
	}),
	{
		key: "rv", name: "Resource version", help: "that it is complete through", number: true,
		compare: func(a, b *Resource) int {
			return cmp.Or(cmp.Compare(len(a.ResourceVersion), len(b.ResourceVersion)),
				cmp.Compare(a.ResourceVersion, b.ResourceVersion))
		},
		cell: func(r *Resource) Cell { return Cell{Text: r.ResourceVersion} },
	},
	figures("contact", "Last contact", "how long ago upstream last sent something useful", func(r *Resource) float64 {
		return r.ContactAgeSeconds
	},
		func(r *Resource) Cell { return Cell{Text: ageOf(r.ContactAgeSeconds)} }),
	figures("span", "History", "that is kept, for clients that resume", func(r *Resource) float64 {
		return r.HistorySpanSeconds
	},
		func(r *Resource) Cell { return Cell{Text: ageOf(r.HistorySpanSeconds)} }),
	figures("entries", "Entries", "of history", func(r *Resource) uint64 { return r.HistoryEvents },
		func(r *Resource) Cell {
			return Cell{Text: Count(r.HistoryEvents)}
		}),
	figures("watches", "Watches", "of clients", func(r *Resource) int { return r.Watches }, func(r *Resource) Cell {
		return Cell{Text: Count(r.Watches)}
	}),
	figures("feeds", "Feeds", "distinct selectors and encodings of these", func(r *Resource) int { return r.Feeds },
		func(r *Resource) Cell { return Cell{Text: Count(r.Feeds)} }),
	figures("lists", "Lists", "complete states listed upstream", func(r *Resource) uint64 { return r.Lists },
		func(r *Resource) Cell { return Cell{Text: Count(r.Lists)} }),
	figures("failures", "Failures", "requests that upstream failed", func(r *Resource) uint64 { return r.Failures },
		func(r *Resource) Cell { return Cell{Text: Count(r.Failures)} }),
	{
		key: "since", name: "Mirrored since", help: "this moment", number: true,
		compare: func(a, b *Resource) int { return a.Since.Compare(b.Since) },
		cell:    func(r *Resource) Cell { return Cell{Text: r.Since.UTC().Format(time.DateTime)} },
	},
}

// synced and starting are states of a mirror that say less than what else is known.
const (
	synced   = "synced"
	starting = "starting"
)

// current is the health of a resource that is as it should be.
const current = "current"

func healthOf(r *Resource) string {
	switch {
	case r.StateAgeSeconds > 0:
		return Seconds(r.StateAgeSeconds) + " old"
	case r.State != "" && r.State != synced && (r.State != starting || r.Error == ""):
		return strings.ReplaceAll(r.State, "_", " ")
	case !r.Synced && r.Error != "":
		return "failing"
	case !r.Synced:
		return "listing"
	}
	return current
}

func stateOf(w *Watch) string {
	if w.blocked() {
		return "blocked " + Seconds(w.BlockedSeconds)
	}
	return w.Phase
}

// blocked reports that the client has read nothing for a second at least: any connection is full
// for a moment now and then.
func (w *Watch) blocked() bool { return w.BlockedSeconds >= 1 }

// selectorOf is what is selected, in one line.
func selectorOf(namespace, name, labels, fields string) string {
	var parts []string
	switch {
	case namespace != "":
		parts = append(parts, namespace+"/"+cmp.Or(name, "*"))
	case name != "":
		parts = append(parts, name)
	}
	for _, part := range []string{labels, fields} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, " ")
}

func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}

func orZero(n uint64) string {
	if n == 0 {
		return none
	}
	return Count(n)
}

func ageOf(seconds float64) string {
	if seconds <= 0 {
		return none
	}
	return Seconds(seconds)
}

func rateOf(perSecond float64) string {
	if perSecond < 0.5 {
		return none
	}
	return Bytes(perSecond) + "/s"
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func clockOf(t *time.Time) string {
	if t == nil {
		return none
	}
	return t.UTC().Format(time.TimeOnly)
}

// WatchTable and ResourceTable show what was selected by q.
func (r *Report) WatchTable(q Query) Table { return table(r.Watches.Items, watchColumns, q.Watches) }

// ResourceTable shows the resources, in q's order.
func (r *Report) ResourceTable(q Query) Table {
	return table(r.Resources, resourceColumns, q.Resources)
}

// evictionColumns are the table of evicted clients.
var evictionColumns = []column[*Eviction]{
	words("at", "At", "when", func(e *Eviction) string { return e.At.UTC().Format(time.TimeOnly) }),
	words("user", "User", "the client as the API server knows it", func(e *Eviction) string { return orNone(e.User) }),
	words("resource", "Resource", "what was watched", func(e *Eviction) string { return e.Resource }),
	words("selector", "Selector", "of what it watched", func(e *Eviction) string {
		return selectorOf(e.Namespace, e.Name, e.LabelSelector, e.FieldSelector)
	}),
	words("agent", "User agent", "what the client says that it is", func(e *Eviction) string {
		return orNone(e.UserAgent)
	}),
	figures("age", "Lasted", "from its beginning to its end", func(e *Eviction) float64 { return e.AgeSeconds },
		func(e *Eviction) Cell { return Cell{Text: Seconds(e.AgeSeconds)} }),
	figures("sent", "Sent", "bytes of events", func(e *Eviction) int64 { return e.Bytes }, func(e *Eviction) Cell {
		return Cell{Text: Bytes(float64(e.Bytes))}
	}),
	words("peer", "Peer", "the client's address", func(e *Eviction) string { return e.Peer }),
}

// EvictionTable shows the evicted clients, the last one first.
func (r *Report) EvictionTable() Table { return table(r.Evictions, evictionColumns, Order{}) }
