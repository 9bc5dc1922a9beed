package upstream

import (
	"slices"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
)

// hushed is where client-go's loop logs: everything at debug level, its errors too, since each failure has a line of ours already.
type hushed struct{ logr.LogSink }

func hush(log *zap.Logger) logr.Logger {
	return logr.New(hushed{zapr.NewLogger(log).GetSink()})
}

// Enabled is that of one level deeper.
func (h hushed) Enabled(level int) bool { return h.LogSink.Enabled(level + 1) }

// Info logs one level deeper.
func (h hushed) Info(level int, msg string, keysAndValues ...any) {
	h.LogSink.Info(level+1, msg, keysAndValues...)
}

// Error logs at debug level.
func (h hushed) Error(err error, msg string, keysAndValues ...any) {
	if h.Enabled(0) {
		h.Info(0, msg, append(slices.Clip(keysAndValues), "err", err)...)
	}
}

// WithValues stays hushed.
func (h hushed) WithValues(keysAndValues ...any) logr.LogSink {
	return hushed{h.LogSink.WithValues(keysAndValues...)}
}

// WithName stays hushed.
func (h hushed) WithName(name string) logr.LogSink { return hushed{h.LogSink.WithName(name)} }
