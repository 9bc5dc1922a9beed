package status

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/utils/ptr"
)

// watchColumns are the table of watches. What tells the most comes first: a narrow screen shows no
// more.
var watchColumns = []column[*Watch]{
	words("user", "User", "the client as the API server knows it; – without authentication",
		func(w *Watch) string { return orNone(w.User) }),
	{
		key: "lag", name: "Lag", help: "for how long something has waited for the client", number: true,
		compare: func(a, b *Watch) int {
			return cmp.Or(cmp.Compare(a.LagSeconds, b.LagSeconds), cmp.Compare(a.LagEvents, b.LagEvents),
				cmp.Compare(a.UnsentBytes, b.UnsentBytes))
		},
		cell: func(w *Watch) Cell { return Cell{Text: ageText(w.LagSeconds), Alert: w.LagSeconds >= lagAlertSeconds} },
	},
	figures("behind", "Behind", "events of history that are still to be sent",
		func(w *Watch) uint64 { return w.LagEvents }, countOrNone),
	figures("rate", "Rate", "bytes that the client was sent per second, lately",
		func(w *Watch) float64 { return w.BytesPerSecond }, rateText),
	words("resource", "Resource", "what is watched", func(w *Watch) string { return w.Resource }),
	words("selector", "Selector", "namespace, name, labels and fields that are watched", func(w *Watch) string {
		return selectorText(w.Namespace, w.Name, w.LabelSelector, w.FieldSelector)
	}),
	words("agent", "User agent", "what the client says that it is",
		func(w *Watch) string { return orNone(w.UserAgent) }),
	{
		key: "state", name: "State",
		help:    "starting, live, paused until the API server can review it, or blocked because the client takes nothing",
		compare: func(a, b *Watch) int { return cmp.Compare(a.stateText(), b.stateText()) },
		cell:    func(w *Watch) Cell { return Cell{Text: w.stateText(), Alert: w.isBlocked() || w.Phase == PhasePaused} },
	},
	figures("sent", "Sent", "bytes of events", func(w *Watch) int64 { return w.Bytes }, sizeText),
	figures("age", "Age", "since the watch began", func(w *Watch) float64 { return w.AgeSeconds }, Seconds),
	{
		key: "event", name: "Last event",
		help: "when the newest event that the client has happened, UTC; – where that is not known", number: true,
		compare: func(a, b *Watch) int { return ptr.Deref(a.LastEvent, never).Compare(ptr.Deref(b.LastEvent, never)) },
		cell:    func(w *Watch) Cell { return Cell{Text: clockText(w.LastEvent)} },
	},
	words("protocol", "Protocol", "protocol of the connection", func(w *Watch) string { return w.Protocol }),
	words("encoding", "Encoding", "encoding of the events", func(w *Watch) string { return w.Encoding }),
	words("peer", "Peer", "the client's address", func(w *Watch) string { return w.Peer }),
	figures("id", "ID", "number that no other watch of this process has", func(w *Watch) uint64 { return w.ID }, Count),
}

// lagAlertSeconds is from when on a lag is highlighted.
const lagAlertSeconds = 5

// resourceColumns are the table of what is mirrored.
var resourceColumns = []column[*Resource]{
	words("resource", "Resource", "what is mirrored, with its group", func(r *Resource) string { return r.Resource }),
	{
		key: "state", name: "State",
		help: "synced, starting, resuming, refused (its requests pass through), falling back to LIST and WATCH, or how " +
			"old it is",
		compare: func(a, b *Resource) int { return cmp.Compare(a.stateText(), b.stateText()) },
		cell: func(r *Resource) Cell {
			state := r.stateText()
			return Cell{Text: state, More: r.cause(), Alert: state != stateSynced}
		},
	},
	figures("objects", "Objects", "objects in memory", func(r *Resource) int { return r.Objects }, Count),
	figures("bytes", "Bytes", "bytes of their JSON", func(r *Resource) int64 { return r.ObjectBytes }, sizeText),
	{
		key: "rv", name: "Resource version", help: "the resourceVersion through which the mirror is complete", number: true,
		compare: func(a, b *Resource) int { // as numbers
			return cmp.Or(cmp.Compare(len(a.ResourceVersion), len(b.ResourceVersion)),
				cmp.Compare(a.ResourceVersion, b.ResourceVersion))
		},
		cell: func(r *Resource) Cell { return Cell{Text: r.ResourceVersion} },
	},
	figures("contact", "Last contact", "how long ago upstream last sent something useful",
		func(r *Resource) float64 { return r.ContactAgeSeconds }, ageText),
	figures("span", "History", "how far back the history reaches, for clients that resume",
		func(r *Resource) float64 { return r.HistorySpanSeconds }, ageText),
	figures("events", "Events", "events of history", func(r *Resource) uint64 { return r.HistoryEvents }, Count),
	figures("watches", "Watches", "watches of clients", func(r *Resource) int { return r.Watches }, Count),
	figures("feeds", "Feeds", "distinct selectors and encodings of these watches",
		func(r *Resource) int { return r.Feeds }, Count),
	figures("lists", "Lists", "complete states listed upstream", func(r *Resource) uint64 { return r.Lists }, Count),
	figures("failures", "Failures", "requests that upstream failed",
		func(r *Resource) uint64 { return r.Failures }, Count),
	{
		key: "since", name: "Mirrored since", help: "when the mirror began", number: true,
		compare: func(a, b *Resource) int { return a.Since.Compare(b.Since) },
		cell:    func(r *Resource) Cell { return Cell{Text: r.Since.UTC().Format(time.DateTime)} },
	},
}

// causeColumns are the table of causes: a terminal has no room for them among resourceColumns.
var causeColumns = []column[*Resource]{
	words("resource", "Resource", "what is mirrored, with its group", func(r *Resource) string { return r.Resource }),
	words("state", "State", "as in the table of resources", func(r *Resource) string { return r.stateText() }),
	words("cause", "Cause", "why it is not synced", func(r *Resource) string { return r.cause() }),
}

// evictionColumns are the table of evicted clients.
var evictionColumns = []column[*Eviction]{
	words("at", "At", "when", func(e *Eviction) string { return e.At.UTC().Format(time.TimeOnly) }),
	words("user", "User", "the client as the API server knows it", func(e *Eviction) string { return orNone(e.User) }),
	words("resource", "Resource", "what was watched", func(e *Eviction) string { return e.Resource }),
	words("selector", "Selector", "of what it watched", func(e *Eviction) string {
		return selectorText(e.Namespace, e.Name, e.LabelSelector, e.FieldSelector)
	}),
	words("agent", "User agent", "what the client says that it is",
		func(e *Eviction) string { return orNone(e.UserAgent) }),
	figures("age", "Lasted", "from its beginning to its end", func(e *Eviction) float64 { return e.AgeSeconds }, Seconds),
	figures("sent", "Sent", "bytes of events", func(e *Eviction) int64 { return e.Bytes }, sizeText),
	words("peer", "Peer", "the client's address", func(e *Eviction) string { return e.Peer }),
}

// rejectionColumns are the table of users whose requests were rejected.
var rejectionColumns = []column[*Rejection]{
	words("at", "At", "when the last one was", func(r *Rejection) string { return r.At.UTC().Format(time.DateTime) }),
	words("user", "User", "the client as the API server knows it; – if that is not known",
		func(r *Rejection) string { return orNone(r.User) }),
	figures("count", "Requests", "that were rejected, since the first one", func(r *Rejection) uint64 { return r.Count },
		Count),
	words("reason", "Reason", "of the last one", func(r *Rejection) string { return r.Reason }),
	words("limit", "Limit", "that rejected the last one", func(r *Rejection) string { return r.Limit }),
	words("since", "Since", "when the first one was",
		func(r *Rejection) string { return r.Since.UTC().Format(time.DateTime) }),
	words("peer", "Peer", "the client's address, if its user is not known",
		func(r *Rejection) string { return orNone(r.Peer) }),
}

// WatchTable shows the watches, in q's order.
func (r *Report) WatchTable(q Query) Table { return table(r.Watches.Items, watchColumns, q.WatchOrder) }

// ResourceTable shows the resources, in q's order.
func (r *Report) ResourceTable(q Query) Table {
	return table(r.Resources, resourceColumns, q.ResourceOrder)
}

// CauseTable shows why resources are not synced: those whose cause is known.
func (r *Report) CauseTable() Table {
	var explained []*Resource
	for _, m := range r.Resources {
		if m.stateText() != stateSynced && m.cause() != "" {
			explained = append(explained, m)
		}
	}
	return table(explained, causeColumns, Order{})
}

// EvictionTable shows the evicted clients, the last one first.
func (r *Report) EvictionTable() Table { return table(r.Evictions, evictionColumns, Order{}) }

// RejectionTable shows the users whose requests were rejected, the last one first.
func (r *Report) RejectionTable() Table { return table(r.Rejections, rejectionColumns, Order{}) }

// recentRejectionPeriod is how long a rejection is shown where room is short.
const recentRejectionPeriod = 5 * time.Minute

// RecentRejections is the part of RejectionTable that is worth a place on a small screen.
func (r *Report) RecentRejections() Table {
	n := 0 // of those that are recent, which are the first ones
	for n < len(r.Rejections) && r.At.Sub(r.Rejections[n].At) < recentRejectionPeriod {
		n++
	}
	return table(r.Rejections[:n], rejectionColumns, Order{})
}

const (
	// stateSynced is shown of a resource that is as it should be. It and stateStarting say less than
	// what else is known.
	stateSynced   = "synced"
	stateStarting = "starting"
)

func (r *Resource) stateText() string {
	switch {
	case r.StateAgeSeconds > 0:
		return Seconds(r.StateAgeSeconds) + " old"
	case r.State != "" && r.State != stateSynced && (r.State != stateStarting || r.Error == ""):
		return strings.ReplaceAll(r.State, "_", " ")
	case !r.Synced && r.Error != "":
		return "failing"
	case !r.Synced:
		return "listing"
	}
	return stateSynced
}

// cause is why the state is not synced; "": not known, or there is nothing to explain.
func (r *Resource) cause() string { return cmp.Or(r.StateCause, r.Error) }

func (w *Watch) stateText() string {
	if w.isBlocked() {
		return "blocked " + Seconds(w.BlockedSeconds)
	}
	return w.Phase
}

// isBlocked reports that the client has read nothing for a second at least: any connection is full
// for a moment now and then.
func (w *Watch) isBlocked() bool { return w.BlockedSeconds >= 1 }

// selectorText is what is selected, in one line.
func selectorText(namespace, name, labels, fields string) string {
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

// none is shown where there is nothing to tell.
const none = "–"

func orNone(text string) string { return cmp.Or(text, none) }

func countOrNone(n uint64) string {
	if n == 0 {
		return none
	}
	return Count(n)
}

func ageText(seconds float64) string {
	if seconds <= 0 {
		return none
	}
	return Seconds(seconds)
}

func sizeText(bytes int64) string { return Bytes(float64(bytes)) }

func rateText(perSecond float64) string {
	if perSecond < 0.5 {
		return none
	}
	return Bytes(perSecond) + "/s"
}

// never is earlier than any event.
var never time.Time

func clockText(t *time.Time) string {
	if t == nil {
		return none
	}
	return t.UTC().Format(time.TimeOnly)
}
