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
	// logPeriod is for how long transitions of one kind and cause are counted after one of them had
	// its line, and flushInterval how often it is looked which periods are over.
	logPeriod     = time.Minute
	flushInterval = logPeriod / 12
	// namedResourcesLimit is how many resources a line names of those that it counts.
	namedResourcesLimit = 5
	// refusedResourcesLimit is how many refused resources have a line of their own, until there was a
	// period without a transition of their group.
	refusedResourcesLimit = 50
)

// LogLimiter logs transitions. Those to one kind of state for one cause have one line for each
// period: the first at once, and then how often it happened again. A proxy on the way, or an API
// server that restarts, concerns every mirror, so that a line for each would hide what it says. A
// resource is refused for itself: it has its line at once, and its repetitions are counted.
type LogLimiter struct {
	log *zap.Logger // static

	mu     sync.Mutex
	groups map[lineGroup]*lineCounts
}

// lineGroup is what transitions have in common that share a line.
type lineGroup struct {
	to  Kind
	why Why
}

// lineCounts counts the transitions of a group since its last line.
type lineCounts struct {
	since     time.Time
	count     int
	resources []string // the first namedResourcesLimit
	reasons   []string // the last one of each of these
	hasMore   bool     // resources
	last      Transition
	refused   map[string]bool // resources that had a line of their own
}

// NewLogLimiter returns a LogLimiter that writes to log. Run writes the lines that are due at the
// end of a period.
func NewLogLimiter(log *zap.Logger) *LogLimiter {
	return &LogLimiter{log: log, groups: map[lineGroup]*lineCounts{}}
}

// Log logs or counts a transition of the mirror of a resource.
func (l *LogLimiter) Log(resource, version string, t Transition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.From.Kind() == KindStarting && t.To.Kind() == KindSynced { // once in a mirror's life
		l.write(t, transitionFields(resource, version, t)...)
		return
	}
	group := lineGroup{t.To.Kind(), t.To.Cause().Why}
	if group.to == KindSynced {
		group.why = t.From.Cause().Why
	}
	c := l.groups[group]
	isFirst := c == nil
	if isFirst {
		c = &lineCounts{since: t.At, refused: map[string]bool{}}
		l.groups[group] = c
	}
	if c.takeOwnLine(resource, t) || isFirst {
		fields := transitionFields(resource, version, t)
		if next := t.To.Next(); !next.IsZero() {
			fields = append(fields, zap.Duration("retryAfter", max(0, next.Sub(t.At).Round(time.Millisecond))))
		}
		l.write(t, fields...)
		return
	}
	c.add(resource, t)
}

// takeOwnLine reports whether a resource has a line of its own, because it is refused, and notes
// that it had.
func (c *lineCounts) takeOwnLine(resource string, t Transition) bool {
	if t.To.Kind() != KindRefused || c.refused[resource] || len(c.refused) >= refusedResourcesLimit {
		return false
	}
	c.refused[resource] = true
	return true
}

// add counts a transition.
func (c *lineCounts) add(resource string, t Transition) {
	c.count++
	c.last = t
	reason := t.To.Cause().Text
	switch i := slices.Index(c.resources, resource); {
	case i >= 0:
		c.reasons[i] = reason
	case len(c.resources) < namedResourcesLimit:
		c.resources, c.reasons = append(c.resources, resource), append(c.reasons, reason)
	default:
		c.hasMore = true
	}
}

// fields are those of the line about all that was counted: with one reason, or with one for each
// resource where they differ.
func (c *lineCounts) fields(now time.Time) []zap.Field {
	names := strings.Join(c.resources, ", ")
	if c.hasMore {
		names += ", …"
	}
	fields := []zap.Field{zap.String("resources", names), zap.Int("count", c.count),
		zap.Duration("period", now.Sub(c.since).Round(time.Second))}
	if len(slices.Compact(slices.Clone(c.reasons))) > 1 {
		each := make([]string, len(c.resources))
		for i, resource := range c.resources {
			each[i] = resource + ": " + c.reasons[i]
		}
		return append(fields, zap.Strings("reasons", each))
	}
	return append(fields, reasonFields(c.last)...)
}

// transitionFields are those of a line about one mirror.
func transitionFields(resource, version string, t Transition) []zap.Field {
	return append([]zap.Field{
		zap.String("resource", resource), zap.String("version", version),
		zap.Duration("after", t.At.Sub(t.From.Since()).Round(time.Millisecond)),
	}, reasonFields(t)...)
}

// reasonFields are the field for why a transition happened, if it needs to be explained.
func reasonFields(t Transition) []zap.Field {
	if reason := t.To.Cause().Text; reason != "" {
		return []zap.Field{zap.String("reason", reason)}
	}
	return nil
}

// Run writes lines at the end of periods until ctx ends.
func (l *LogLimiter) Run(ctx context.Context) {
	tick := time.NewTicker(flushInterval)
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
	for group, c := range l.groups {
		switch {
		case now.Sub(c.since) < logPeriod:
		case c.count == 0:
			delete(l.groups, group)
		default:
			l.write(c.last, c.fields(now)...)
			l.groups[group] = &lineCounts{since: now, refused: c.refused}
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
		return "the mirror is synced again", zap.InfoLevel
	case KindResuming:
		return "the mirror is not kept current, its watch is opened again", zap.WarnLevel
	case KindRefused:
		if t.To.Cause().Why == WhyUncacheable && t.To.Next().IsZero() {
			return "the resource is never mirrored, its requests pass through", zap.WarnLevel
		}
		return "the resource is not mirrored for now, its requests pass through", zap.WarnLevel
	case KindFallingBack:
		return "the mirror falls back to LIST and WATCH", zap.WarnLevel
	}
	return "the mirror has ended, its requests pass through", zap.InfoLevel
}
