package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/cache"
	"spillway/internal/object"
)

// retelling is what upstream tells of the past, and those who listen. It is told once: what has been told is kept, up to a number of bytes,
// so that who comes while it is under way can hear all of it, and everybody at his own pace.
//
// Nobody who listens can hold it up for long: where there is no room to keep more, it waits for the slowest a little while in all, and then goes
// on without him. Nor can anybody hold on to what was told: some seconds after its end it is gone. Until then those may still hear it whom
// that suffices: after a restart clients come back over some seconds, and all lack the same.
type retelling struct {
	// Static after construction.
	backfills *Backfills
	key       string
	selector  object.Selector // what upstream is asked for
	owner     Owner           // whose turn it takes: the first client's, if it is not shared
	voids     uint64          // of the log, when it began
	ctx       context.Context // ends when nobody listens
	cancel    context.CancelFunc
	begun     chan struct{} // closed when it has its turn, or never will have

	// Its own goroutine's.
	patience time.Duration // left for those who are slow

	mu struct {
		sync.Mutex
		listeners map[*Backfill]uint64 // and the number of the first item that each has not taken
		told      bool                 // a watch was opened at from: who needs more than that comes too late
		from      uint64               // likewise
		through   uint64               // what has been told is complete through this
		target    uint64               // the greatest that somebody has to hear of
		items     []item
		first     uint64 // number of items[0]
		dropped   uint64 // the resourceVersion of the item before that: who is not through it cannot be told everything
		bytes     int64
		end       error         // why nothing follows
		gone      bool          // with all that was told
		changed   chan struct{} // closed and replaced when there are more items, or the end
		moved     chan struct{} // likewise, when somebody has heard something or left
	}
}

// item is an event, or without an object a bookmark.
type item struct {
	kind   object.Type
	object *object.Object
	rv     uint64
}

func (i item) size() int64 {
	const overhead = 96
	if i.object == nil {
		return overhead
	}
	return int64(i.object.Size()) + overhead
}

const (
	// retellingPatience is how long it waits for the slow, in all.
	retellingPatience = 2 * time.Second
	// retellingEcho is how long what was told can be heard after its end.
	retellingEcho = 5 * time.Second
	// muteWatches is how many watches in a row may tell nothing, not even by a bookmark.
	muteWatches = 3
)

var (
	errTold = errors.New("everything has been told")
	errMute = errors.New("upstream tells neither events nor how far it is")
)

func newRetelling(b *Backfills, key string, sel object.Selector) *retelling {
	r := &retelling{backfills: b, key: key, selector: sel, voids: b.hub.resource.Log().Voids(), begun: make(chan struct{}), patience: retellingPatience}
	r.ctx, r.cancel = context.WithCancel(b.ctx)
	r.mu.listeners = map[*Backfill]uint64{}
	r.mu.changed, r.mu.moved = make(chan struct{}), make(chan struct{})
	return r
}

// admit lets a client listen, if it can be told everything that it lacks.
func (r *retelling) admit(f *Backfill) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.voids != r.voids {
		return false
	}
	over := r.mu.end != nil && (r.mu.end != errTold || f.target > r.mu.through)
	if over || r.mu.gone || r.ctx.Err() != nil || r.mu.told && f.through < max(r.mu.from, r.mu.dropped) {
		return false
	}
	f.next = r.mu.first
	r.mu.listeners[f] = f.next
	r.mu.target = max(r.mu.target, f.target)
	return true
}

// leave lets the retelling go on without a client. It ends with the last.
func (r *retelling) leave(f *Backfill) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.listeners, f)
	if len(r.mu.listeners) == 0 && !(r.mu.end == errTold && r.shared()) {
		r.cancel()
	}
	r.moveLocked()
}

// shared reports that it is for all who select by names and namespaces alone.
func (r *retelling) shared() bool { return r.key == "" }

func (r *retelling) moveLocked() {
	close(r.mu.moved)
	r.mu.moved = make(chan struct{})
}

func (r *retelling) changeLocked() {
	close(r.mu.changed)
	r.mu.changed = make(chan struct{})
}

// aim has more told than was asked for before.
func (r *retelling) aim(target uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.target = max(r.mu.target, target)
}

// itemsAtOnce is how many items a client looks at before it is asked again where it is.
const itemsAtOnce = 256

// from is what a client has not looked at yet. If there is nothing, end is why nothing follows, or changed closes when something does.
func (r *retelling) from(f *Backfill) (items []item, changed <-chan struct{}, end error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case f.refused != nil:
		return nil, nil, f.refused
	case f.next < r.mu.first:
		return nil, nil, ErrBackfillBehind
	case f.next > r.mu.listeners[f]:
		r.mu.listeners[f] = f.next
		r.moveLocked()
	}
	items = r.mu.items[f.next-r.mu.first:]
	items = items[:min(len(items), itemsAtOnce):len(items)]
	return items, r.mu.changed, r.mu.end
}

// run retells, once it has its turn.
func (r *retelling) run() {
	defer r.cancel()
	limit := r.backfills.limit
	err := limit.acquire(r.ctx, r.owner)
	close(r.begun)
	if err == nil {
		err = r.retell()
		limit.release(r.owner)
	}
	r.finish(err)
	echo := time.NewTimer(retellingEcho)
	defer echo.Stop()
	select {
	case <-echo.C:
	case <-r.ctx.Done(): // nobody listens
	}
	r.backfills.forget(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.gone = true
	r.dropLocked(len(r.mu.items))
	r.changeLocked()
}

func (r *retelling) finish(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.end = err
	r.changeLocked()
}

// retell has upstream tell everything up to the target, however many watches that takes. The error is errTold, or why it could not be done.
func (r *retelling) retell() error {
	for mute := 0; mute < muteWatches; {
		told, err := r.watch()
		switch {
		case err == nil && told: // the watch has ended; the next goes on from there
			mute = 0
		case err == nil:
			mute++
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			if err := r.refuse(err); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return errMute
}

// watch reads one watch to its end, and reports whether it told anything. The error is errTold once everything has been told.
func (r *retelling) watch() (told bool, err error) {
	rv, telling, err := r.backfills.past.Begin(r.ctx)
	if err != nil {
		return false, err
	}
	defer telling.Close()
	from, target, ok := r.start()
	switch {
	case !ok:
		return false, context.Canceled
	case rv < target: // it does not know what it is to tell: its history has been rewritten
		return false, fmt.Errorf("upstream is at %d, and was at %d before", rv, target)
	}
	if err := telling.Watch(r.ctx, r.selector, from); err != nil {
		return false, err
	}
	r.backfills.opened.Add(1)
	r.backfills.open.Add(1)
	defer r.backfills.open.Add(-1)
	for {
		kind, o, rv, err := telling.Next()
		switch {
		case errors.Is(err, io.EOF), err != nil && told && !answered(err): // whatever cut it off, the next goes on from there
			return told, nil
		case err != nil:
			return told, err
		case r.hear(item{kind: kind, object: o, rv: rv}):
			return true, errTold
		}
		told = true
	}
}

// answered reports that an error is upstream's own.
func answered(err error) bool { return errors.As(err, new(apierrors.APIStatus)) }

// refusal reports that upstream would refuse such a request at any other time, too.
func refusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := int(status.Status().Code)
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

// start is where the next watch begins: where the last one ended, or at the smallest resourceVersion of those who listen by now. It returns
// false if nobody listens.
func (r *retelling) start() (from, target uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.told {
		return r.mu.through, r.mu.target, len(r.mu.listeners) > 0
	}
	for f := range r.mu.listeners {
		if !ok || f.through < from {
			from, ok = f.through, true
		}
	}
	r.mu.told, r.mu.from, r.mu.through = true, from, from
	return from, r.mu.target, ok
}

// refuse sends away those who ask for more than upstream remembers, with upstream's own refusal: its message says from where on it does
// (W-107). Whoever asked for the least is refused in any case, so that the next watch is another one. An error is everybody's refusal.
func (r *retelling) refuse(err error) error {
	var asked, oldest uint64
	words := ""
	if _, bad := fmt.Sscanf(err.Error(), "too old resource version: %d (%d)", &asked, &oldest); bad != nil {
		oldest = 0
		if apierrors.IsResourceExpired(err) {
			words = err.Error()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.first > 0 || len(r.mu.items) > 0 { // upstream has forgotten meanwhile what was to come next, which all of them lack
		return &cache.ExpiredError{Asked: r.mu.through, Oldest: max(oldest, r.mu.through+1), Words: words}
	}
	oldest = max(oldest, r.mu.from+1)
	for f := range r.mu.listeners {
		if f.through < oldest {
			f.refused = &cache.ExpiredError{Asked: f.through, Oldest: oldest, Words: words}
			delete(r.mu.listeners, f)
		}
	}
	if len(r.mu.listeners) == 0 {
		r.cancel()
	}
	r.mu.told = false
	r.changeLocked()
	return nil
}

// hear keeps an item for those who listen. It reports whether everything has been told by then.
func (r *retelling) hear(i item) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	complete := i.rv
	if i.object != nil {
		complete--
	}
	if complete >= r.mu.target && !r.raiseLocked(complete) {
		r.keepLocked(item{rv: complete})
		r.mu.end = errTold
		return true
	}
	r.roomLocked(i.size())
	r.keepLocked(i)
	return false
}

// raiseLocked raises the target to where the log begins by now, and reports whether that is beyond what has been told.
func (r *retelling) raiseLocked(complete uint64) bool {
	for complete >= r.mu.target {
		_, err := r.backfills.hub.resource.Log().Find(r.mu.target)
		var expired *cache.ExpiredError
		if !errors.As(err, &expired) || !expired.Missing() {
			return false
		}
		r.mu.target = expired.Oldest
	}
	return true
}

func (r *retelling) keepLocked(i item) {
	r.mu.items = append(r.mu.items, i)
	r.mu.through = max(r.mu.through, i.rv)
	r.mu.bytes += i.size()
	r.backfills.limit.held.Add(i.size())
	r.changeLocked()
}

// roomLocked makes room for so many bytes: of what everybody has taken, and if that is not enough, of what the slowest have not.
func (r *retelling) roomLocked(size int64) {
	limit := r.backfills.limit
	for len(r.mu.items) > 0 && limit.full(r.mu.bytes, size) {
		taken := uint64(len(r.mu.items))
		for _, next := range r.mu.listeners {
			taken = min(taken, max(next, r.mu.first)-r.mu.first)
		}
		switch {
		case taken > 0:
			r.dropLocked(int(taken)) // #nosec G115 -- not above the number of items
		case r.patience <= 0 || r.ctx.Err() != nil:
			r.dropLocked((len(r.mu.items) + 1) / 2)
		default:
			r.awaitLocked()
		}
	}
}

// awaitLocked waits until somebody has taken something, as long as there is patience.
func (r *retelling) awaitLocked() {
	moved := r.mu.moved
	r.mu.Unlock()
	defer r.mu.Lock()
	began := time.Now()
	timer := time.NewTimer(r.patience)
	defer timer.Stop()
	select {
	case <-moved:
	case <-timer.C:
	case <-r.ctx.Done():
	}
	r.patience -= time.Since(began)
}

// dropLocked forgets the oldest items.
func (r *retelling) dropLocked(n int) {
	for _, i := range r.mu.items[:n] {
		r.mu.bytes -= i.size()
		r.backfills.limit.held.Add(-i.size())
		r.mu.dropped = i.rv
	}
	r.mu.items = append([]item(nil), r.mu.items[n:]...) // another array: some may still be reading this one
	r.mu.first += uint64(n)                             // #nosec G115 -- a number of items
}
