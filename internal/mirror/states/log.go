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
)

// LogLimiter logs transitions. Those to one kind of state for one cause have one line for each
// period: the first at once, and then how often it happened again. A proxy between, an apiserver
// that restarts or a missing right concern every mirror, so that a line for each would hide what it
// says.
type LogLimiter struct {
	log    *zap.Logger
	period time.Duration
	now    func() time.Time

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
	more      bool
	last      Transition
}

// NewLog writes to log. Run writes the lines that are due at the end of a period.
func NewLog(log *zap.Logger, period time.Duration, now func() time.Time) *LogLimiter {
	return &LogLimiter{log: log, period: period, now: now, chains: map[lineGroup]*lineCounts{}}
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
	if r == nil {
		l.chains[key] = &lineCounts{since: t.At}
		fields := of(resource, version, t)
		if next := t.To.Next(); !next.IsZero() {
			fields = append(fields, zap.Duration("retryAfter", next.Sub(t.At).Round(time.Millisecond)))
		}
		l.write(t, fields...)
		return
	}
	r.count++
	r.last = t
	switch name := resource; {
	case slices.Contains(r.resources, name):
	case len(r.resources) < namedResourcesLimit:
		r.resources = append(r.resources, name)
	default:
		r.more = true
	}
}

// of is what a line about one mirror begins with.
func of(resource, version string, t Transition) []zap.Field {
	return []zap.Field{
		zap.String("resource", resource), zap.String("version", version),
		zap.Duration("after", t.At.Sub(t.From.Since()).Round(time.Millisecond)),
	}
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
	now := l.now()
	for key, r := range l.chains {
		switch {
		case now.Sub(r.since) < l.period:
		case r.count == 0:
			delete(l.chains, key)
		default:
			names := strings.Join(r.resources, ", ")
			if r.more {
				names += ", …"
			}
			l.write(r.last, zap.String("resources", names), zap.Int("count", r.count),
				zap.Duration("period", now.Sub(r.since).Round(time.Second)))
			l.chains[key] = &lineCounts{since: now}
		}
	}
}

func (l *LogLimiter) write(t Transition, fields ...zap.Field) {
	text, level := describe(t)
	fields = append(fields, zap.String("state", string(t.To.Kind())), zap.String("previousState", string(t.From.Kind())))
	if reason := t.To.Cause().Text; reason != "" {
		fields = append(fields, zap.String("reason", reason))
	}
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
