package upstream

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// Ability says whether upstream can do something.
type Ability int8

// The values of an Ability.
const (
	AbilityUnknown Ability = iota // it has not shown itself
	AbilityAbsent
	AbilityPresent
)

// String implements fmt.Stringer.
func (a Ability) String() string { return [...]string{"unknown", "no", "yes"}[a] }

// abilityOf is the ability that one observation shows.
func abilityOf(present bool) Ability {
	if present {
		return AbilityPresent
	}
	return AbilityAbsent
}

// Abilities are what upstream can do. They are found out by its behaviour and not derived from its
// version, since owners and vendors change feature gates. While several versions answer at one
// address, they are what the least able of them can do. Immutable and comparable.
type Abilities struct {
	// Oldest and Newest are the versions that answered lately; they differ during an upgrade.
	Oldest, Newest string
	// WatchList: a watch with sendInitialEvents is served, not refused (W-101).
	WatchList Ability
	// WatchListCompression: a watch-list is compressed for a client that accepts gzip (W-7).
	WatchListCompression Ability
}

// NamedAbility is one of Abilities as metrics, pages and logs name it.
type NamedAbility struct {
	Name  string
	Value Ability
}

// All are the abilities by name, in a fixed order.
func (a Abilities) All() []NamedAbility {
	return []NamedAbility{
		{"watch_list", a.WatchList}, {"watch_list_compression", a.WatchListCompression},
	}
}

// Version is the version, or the two ends of several.
func (a Abilities) Version() string {
	if a.Oldest == a.Newest {
		return a.Oldest
	}
	return a.Oldest + " to " + a.Newest
}

// String is the abilities in one line.
func (a Abilities) String() string {
	var b strings.Builder
	b.WriteString(a.Version())
	for _, one := range a.All() {
		fmt.Fprintf(&b, ", %s %s", strings.ReplaceAll(one.Name, "_", " "), one.Value)
	}
	return b.String()
}

// mixedVersionsPeriod is for how long a version, and what it could not do, counts after it was last
// seen: during an upgrade each answer may be of another apiserver.
const mixedVersionsPeriod = 10 * time.Minute

// abilityRecord joins what is observed of upstream's abilities.
type abilityRecord struct {
	current atomic.Pointer[Abilities]

	mu       sync.Mutex
	versions map[string]time.Time // when each was last seen
	seen     Abilities            // the last observation of each that showed anything
	absent   Abilities            // AbilityAbsent where one has shown itself so
	since    [2]time.Time         // when it last did, in the order of fields
}

func newAbilityRecord() *abilityRecord {
	r := &abilityRecord{versions: map[string]time.Time{}}
	r.current.Store(&Abilities{})
	return r
}

// fields are the abilities in a fixed order.
func (a *Abilities) fields() [2]*Ability {
	return [...]*Ability{&a.WatchList, &a.WatchListCompression}
}

// sawVersion notes what /version said.
func (r *abilityRecord) sawVersion(git string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions[git] = time.Now()
	r.joinLocked()
}

// saw notes one observation. What it leaves unknown stays as it was.
func (r *abilityRecord) saw(a Abilities) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, absent := r.seen.fields(), r.absent.fields()
	for i, one := range a.fields() {
		if *one != AbilityUnknown {
			*seen[i] = *one
		}
		if *one == AbilityAbsent {
			*absent[i], r.since[i] = AbilityAbsent, time.Now()
		}
	}
	r.joinLocked()
}

// joinLocked makes the lower of what was seen lately the present value.
func (r *abilityRecord) joinLocked() {
	now, joined := time.Now(), r.seen
	absent, fields := r.absent.fields(), joined.fields()
	for i, one := range fields {
		if *absent[i] == AbilityAbsent && now.Sub(r.since[i]) < mixedVersionsPeriod {
			*one = AbilityAbsent
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

// Abilities are what is known by now.
func (c *Client) Abilities() Abilities { return *c.abilities.current.Load() }

// ProbeAbilities finds out again what upstream can do, by a watch-list that costs it next to
// nothing: it selects one name, and nothing. An ability is concluded from an answer that shows or
// excludes it, never from silence: what does not show itself this time stays as it was.
func (p *Prober) ProbeAbilities(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	seen, err := p.watchListAbilities(ctx)
	p.client.abilities.saw(seen)
	return err
}

// abilitySelector selects no object, and one key of storage.
const abilitySelector = "metadata.name=spillway,metadata.name!=spillway"

// watchListAbilities observes whether a watch-list is served, and compressed.
func (p *Prober) watchListAbilities(ctx context.Context) (seen Abilities, err error) {
	r := p.request("watch", metav1.ListOptions{
		AllowWatchBookmarks: true, SendInitialEvents: new(true), ResourceVersion: "0",
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, FieldSelector: abilitySelector,
		TimeoutSeconds: new(int64(1)),
	})
	r.OnHead = func(head http.Header) { seen = p.client.servedWatchList(head) }
	body, err := p.client.Get(ctx, r)
	switch {
	case err == nil:
		_ = body.Close()
	case apierrors.IsInvalid(err):
		seen.WatchList, err = AbilityAbsent, nil
	}
	return seen, err
}

// servedWatchList is what the head of a watch-list shows.
func (c *Client) servedWatchList(head http.Header) Abilities {
	seen := Abilities{WatchList: AbilityPresent}
	if !c.cfg.DisableCompression { // else it was not asked for
		seen.WatchListCompression = abilityOf(head.Get("Content-Encoding") == "gzip")
	}
	return seen
}
