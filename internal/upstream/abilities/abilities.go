package abilities

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// Ability says whether upstream can do something.
type Ability int8

// The values of an Ability.
const (
	Unknown Ability = iota // it has not shown itself
	Absent
	Present
)

// String implements fmt.Stringer.
func (a Ability) String() string { return [...]string{"unknown", "no", "yes"}[a] }

// Summary is what upstream can do. It is found out by its behaviour and not derived from its
// version, because owners and vendors change feature gates. While several versions answer at one
// address, it is what the least able of them can do. Immutable and comparable.
type Summary struct {
	// Oldest and Newest are the versions that answered lately; they differ during an upgrade.
	Oldest, Newest string
	// WatchList: a watch with sendInitialEvents is served, not refused (W-101).
	WatchList Ability
	// WatchListCompression: a watch-list is compressed for a client that accepts gzip (W-7).
	WatchListCompression Ability
}

// NamedAbility is one of a Summary as metrics, pages and logs name it.
type NamedAbility struct {
	Name  string
	Value Ability
}

// All are the abilities by name, in a fixed order.
func (s Summary) All() []NamedAbility {
	return []NamedAbility{
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

// String is the abilities in one line.
func (s Summary) String() string {
	var b strings.Builder
	b.WriteString(s.Version())
	for _, one := range s.All() {
		fmt.Fprintf(&b, ", %s %s", strings.ReplaceAll(one.Name, "_", " "), one.Value)
	}
	return b.String()
}

// mixedVersionsPeriod is for how long a version, and what it could not do, counts after it was last
// seen: during an upgrade each answer may be of another apiserver.
const mixedVersionsPeriod = 10 * time.Minute

// Record joins what is observed of upstream's abilities. Safe for use by many goroutines.
type Record struct {
	gzip    bool // is accepted
	current atomic.Pointer[Summary]

	mu       sync.Mutex
	versions map[string]time.Time // when each was last seen
	seen     Summary              // the last observation of each that showed anything
	absentAt [2]time.Time         // when each last showed itself absent, in the order of fields
}

// NewRecord knows nothing yet. gzip says that requests accept it.
func NewRecord(gzip bool) *Record {
	r := &Record{gzip: gzip, versions: map[string]time.Time{}}
	r.current.Store(&Summary{})
	return r
}

// Summary is what is known by now.
func (r *Record) Summary() Summary { return *r.current.Load() }

// fields are the abilities in a fixed order.
func (s *Summary) fields() [2]*Ability {
	return [...]*Ability{&s.WatchList, &s.WatchListCompression}
}

// ObserveVersion notes what /version said.
func (r *Record) ObserveVersion(git string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions[git] = time.Now()
	r.joinLocked()
}

// ObserveWatchList notes what the head of a watch-list shows.
func (r *Record) ObserveWatchList(head http.Header) {
	seen := Summary{WatchList: Present}
	switch {
	case !r.gzip: // it was not asked for
	case head.Get("Content-Encoding") == "gzip":
		seen.WatchListCompression = Present
	default:
		seen.WatchListCompression = Absent
	}
	r.observe(seen)
}

// ObserveRefusal notes that a watch-list was refused as invalid.
func (r *Record) ObserveRefusal() { r.observe(Summary{WatchList: Absent}) }

// observe notes one observation. What it leaves unknown stays as it was.
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

// joinLocked makes the lower of what was seen lately the present value.
func (r *Record) joinLocked() {
	now, joined := time.Now(), r.seen
	for i, one := range joined.fields() {
		if now.Sub(r.absentAt[i]) < mixedVersionsPeriod {
			*one = Absent
		}
	}
	for git, last := range r.versions {
		if now.Sub(last) >= mixedVersionsPeriod {
			delete(r.versions, git)
			continue
		}
		if joined.Oldest == "" || olderVersion(git, joined.Oldest) {
			joined.Oldest = git
		}
		if joined.Newest == "" || olderVersion(joined.Newest, git) {
			joined.Newest = git
		}
	}
	r.current.Store(&joined)
}

// olderVersion orders versions; what is no version is older than any.
func olderVersion(a, b string) bool {
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
