package capabilities

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// Capability says whether upstream can do something.
type Capability int8

// The values of a Capability.
const (
	Unknown Capability = iota // no answer has shown or excluded it
	Absent
	Present
)

// String implements fmt.Stringer.
func (c Capability) String() string { return [...]string{"unknown", "no", "yes"}[c] }

// Summary is what upstream can do. It is concluded from upstream's answers and not from its
// version, because owners and vendors change feature gates. While several versions answer at one
// address, it is what the least able of them can do. Immutable and comparable.
type Summary struct {
	// Oldest and Newest are the versions that have answered lately; they differ during an upgrade.
	Oldest, Newest string
	// WatchList: a watch with sendInitialEvents is served, not refused (W-101).
	WatchList Capability
	// WatchListCompression: a watch-list is compressed for a client that accepts gzip (W-7).
	WatchListCompression Capability
}

// NamedCapability is a capability with its name in metrics, pages and logs.
type NamedCapability struct {
	Name  string
	Value Capability
}

// All are the capabilities by name, in a fixed order.
func (s Summary) All() []NamedCapability {
	return []NamedCapability{
		{"watch_list", s.WatchList}, {"watch_list_compression", s.WatchListCompression},
	}
}

// Version is the version, or the two ends of several.
func (s Summary) Version() string {
	if s.Oldest == s.Newest {
		return s.Oldest
	}
	return s.Oldest + " to " + s.Newest
}

// String is the capabilities in one line.
func (s Summary) String() string {
	var b strings.Builder
	b.WriteString(s.Version())
	for _, one := range s.All() {
		fmt.Fprintf(&b, ", %s %s", strings.ReplaceAll(one.Name, "_", " "), one.Value)
	}
	return b.String()
}

// mixedVersionsPeriod is for how long a version, and the absence of a capability, counts after it
// was last seen: during an upgrade each answer may be of another API server.
const mixedVersionsPeriod = 10 * time.Minute

// Record joins what is observed of upstream's capabilities. Safe for use by many goroutines.
type Record struct {
	acceptsGzip bool // requests do
	current     atomic.Pointer[Summary]

	mu       sync.Mutex
	versions map[string]time.Time // when each was last seen
	seen     Summary              // of each capability what was seen last
	absentAt [2]time.Time         // when each was last seen to be absent, in the order of fields
}

// NewRecord makes an empty Record. acceptsGzip says whether requests accept gzip.
func NewRecord(acceptsGzip bool) *Record {
	r := &Record{acceptsGzip: acceptsGzip, versions: map[string]time.Time{}}
	r.current.Store(&Summary{})
	return r
}

// Summary is what is known by now.
func (r *Record) Summary() Summary { return *r.current.Load() }

// fields are the capabilities in a fixed order.
func (s *Summary) fields() [2]*Capability {
	return [...]*Capability{&s.WatchList, &s.WatchListCompression}
}

// ObserveVersion notes the gitVersion that /version returned.
func (r *Record) ObserveVersion(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions[version] = time.Now()
	r.joinLocked()
}

// ObserveWatchList notes the head of a watch-list.
func (r *Record) ObserveWatchList(head http.Header) {
	seen := Summary{WatchList: Present}
	switch {
	case !r.acceptsGzip: // an uncompressed answer shows nothing
	case head.Get("Content-Encoding") == "gzip":
		seen.WatchListCompression = Present
	default:
		seen.WatchListCompression = Absent
	}
	r.observe(seen)
}

// ObserveRefusal notes that a watch-list was refused as invalid.
func (r *Record) ObserveRefusal() { r.observe(Summary{WatchList: Absent}) }

// observe notes one observation. Capabilities that it leaves unknown stay as they were.
func (r *Record) observe(s Summary) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen.fields()
	for i, one := range s.fields() {
		if *one != Unknown {
			*seen[i] = *one
		}
		if *one == Absent {
			r.absentAt[i] = time.Now()
		}
	}
	r.joinLocked()
}

// joinLocked makes the Summary of the versions and capabilities that were seen lately.
func (r *Record) joinLocked() {
	now, joined := time.Now(), r.seen
	for i, one := range joined.fields() {
		if now.Sub(r.absentAt[i]) < mixedVersionsPeriod {
			*one = Absent
		}
	}
	for seen, last := range r.versions {
		if now.Sub(last) >= mixedVersionsPeriod {
			delete(r.versions, seen)
			continue
		}
		if joined.Oldest == "" || isOlder(seen, joined.Oldest) {
			joined.Oldest = seen
		}
		if joined.Newest == "" || isOlder(joined.Newest, seen) {
			joined.Newest = seen
		}
	}
	r.current.Store(&joined)
}

// isOlder orders versions; a text that is no version is older than any.
func isOlder(a, b string) bool {
	x, errX := version.ParseSemantic(a)
	y, errY := version.ParseSemantic(b)
	switch {
	case errX != nil && errY != nil:
		return a < b
	case errX != nil || errY != nil:
		return errX != nil
	}
	return x.LessThan(y)
}
