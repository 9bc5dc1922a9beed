package states

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// LogPeriod is for how long transitions of one kind and cause are counted after one of them had
	// its line.
	LogPeriod = time.Minute
	// namedResourcesLimit is how many resources a line names of those that it counts.
	namedResourcesLimit = 5
	// refusedResourcesLimit is how many resources have a line of their own in a period when they are
	// refused.
	refusedResourcesLimit = 50
)

// LogLimiter logs transitions. Those to one kind of state for one cause have one line for each
// period: the first at once, and then how often it happened again. A proxy between or an apiserver
// that restarts concern every mirror, so that a line for each would hide what it says. A resource
// that is refused is refused for itself: it has its line at once, and its repetitions are counted.
type LogLimiter struct {
	log    *zap.Logger
	period time.Duration

	mu     sync.Mutex
	chains map[lineGroup]*lineCounts
}

// lineGroup is what transitions have in common that share a line.
type lineGroup struct {
	to  Kind
	why Why
}

// lineCounts is what happened since the line before.
type lineCounts struct {
	since     time.Time
	count     int
	resources []string // at most namedResourcesLimit
	reasons   []string // of these
	more      bool
	last      Transition
	refused   map[string]bool // resources that had a line of their own
}

// isNew reports that a resource is refused that has had no line of its own, and notes that it has.
func (r *lineCounts) isNew(resource string, t Transition) bool {
	if t.To.Kind() != KindRefused || r.refused[resource] || len(r.refused) >= refusedResourcesLimit {
		return false
	}
	r.refused[resource] = true
	return true
}

// note counts a transition.
func (r *lineCounts) note(resource string, t Transition) {
	r.count++
	r.last = t
	reason := t.To.Cause().Text
	switch i := slices.Index(r.resources, resource); {
	case i >= 0:
		r.reasons[i] = reason
	case len(r.resources) < namedResourcesLimit:
		r.resources, r.reasons = append(r.resources, resource), append(r.reasons, reason)
	default:
		r.more = true
	}
}

// fields are what the line about all that was counted begins with: one reason, or one for each
// resource where they differ.
func (r *lineCounts) fields(now time.Time) []zap.Field {
	names := strings.Join(r.resources, ", ")
	if r.more {
		names += ", …"
	}
	fields := []zap.Field{zap.String("resources", names), zap.Int("count", r.count),
		zap.Duration("period", now.Sub(r.since).Round(time.Second))}
	if len(slices.Compact(slices.Clone(r.reasons))) > 1 {
		each := make([]string, len(r.resources))
		for i, resource := range r.resources {
			each[i] = resource + ": " + r.reasons[i]
		}
		return append(fields, zap.Strings("reasons", each))
	}
	return append(fields, reasonOf(r.last)...)
}

// NewLog writes to log. Run writes the lines that are due at the end of a period.
func NewLog(log *zap.Logger, period time.Duration) *LogLimiter {
	return &LogLimiter{log: log, period: period, chains: map[lineGroup]*lineCounts{}}
}

// Tell hears of a transition of the mirror of a resource.
func (l *LogLimiter) Tell(resource, version string, t Transition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.From.Kind() == KindStarting && t.To.Kind() == KindSynced { // once in a mirror's life
		l.write(t, of(resource, version, t)...)
		return
	}
	key := lineGroup{t.To.Kind(), t.To.Cause().Why}
	if key.to == KindSynced {
		key.why = t.From.Cause().Why
	}
	r := l.chains[key]
	isFirst := r == nil
	if isFirst {
		r = &lineCounts{since: t.At, refused: map[string]bool{}}
		l.chains[key] = r
	}
	if r.isNew(resource, t) || isFirst {
		fields := of(resource, version, t)
		if next := t.To.Next(); !next.IsZero() {
			fields = append(fields, zap.Duration("retryAfter", next.Sub(t.At).Round(time.Millisecond)))
		}
		l.write(t, fields...)
		return
	}
	r.note(resource, t)
}

// of is what a line about one mirror begins with.
func of(resource, version string, t Transition) []zap.Field {
	return append([]zap.Field{
		zap.String("resource", resource), zap.String("version", version),
		zap.Duration("after", t.At.Sub(t.From.Since()).Round(time.Millisecond)),
	}, reasonOf(t)...)
}

// reasonOf is the field for why a transition happened, if it needs to be explained.
func reasonOf(t Transition) []zap.Field {
	if reason := t.To.Cause().Text; reason != "" {
		return []zap.Field{zap.String("reason", reason)}
	}
	return nil
}

// Run writes lines at the end of periods until ctx ends.
func (l *LogLimiter) Run(ctx context.Context) {
	tick := time.NewTicker(l.period / 12)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.Flush()
		case <-ctx.Done():
			return
		}
	}
}

// Flush writes the lines of the periods that are over.
func (l *LogLimiter) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for key, r := range l.chains {
		switch {
		case now.Sub(r.since) < l.period:
		case r.count == 0:
			delete(l.chains, key)
		default:
			l.write(r.last, r.fields(now)...)
			l.chains[key] = &lineCounts{since: now, refused: r.refused}
		}
	}
}

func (l *LogLimiter) write(t Transition, fields ...zap.Field) {
	text, level := describe(t)
	fields = append(fields, zap.String("state", string(t.To.Kind())), zap.String("previousState", string(t.From.Kind())))
	l.log.Log(level, text, fields...)
}

// describe is a transition in plain words.
func describe(t Transition) (string, zapcore.Level) {
	switch t.To.Kind() {
	case KindStarting:
		return "the mirror has no state yet", zap.WarnLevel
	case KindSynced:
		if t.From.Kind() == KindStarting {
			return "the mirror is synced", zap.InfoLevel
		}
		return "the mirror is current again", zap.InfoLevel
	case KindResuming:
		return "the mirror is not kept current, its watch is opened again", zap.WarnLevel
	case KindRefused:
		return "the resource is not mirrored for now, its requests pass through", zap.WarnLevel
	case KindFallingBack:
		return "the mirror falls back to LIST and WATCH", zap.WarnLevel
	}
	return "the mirror has ended, its requests pass through", zap.InfoLevel
}
