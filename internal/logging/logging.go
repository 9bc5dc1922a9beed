// Package logging makes the logger of the process.
//
// Invariants: an entry is one line, whatever is in it, and a bounded one. Each entry passes one
// encoder that sees to it, so that no caller has to clean what it logs. A goroutine that logs does
// not wait for the output (see Output).
package logging

import (
	"flag"
	"io"
	"strconv"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// Levels and Formats are what New takes.
var (
	Levels  = []string{"debug", "info", "warn", "error"}
	Formats = []string{"json", "console"}
)

// klogVerbosity is how much of client-go's own log comes along with --log-level=debug: what its
// reflectors do, not every request.
const klogVerbosity = 2

// New returns a logger that writes one line per entry to w: level is one of Levels, format one of
// Formats. Entries never carry stack traces; what the caller learns must be in the message. The
// logs of client-go (klog) and of the standard library go the same way from then on, which is
// process-wide. What was logged last is in w once the logger's Sync has returned. Where w is an
// Output, a line in the same format counts the lines that it drops.
func New(level, format string, w io.Writer) *zap.Logger {
	var threshold zapcore.Level
	_ = threshold.Set(level) // one of Levels; else info
	encoder := newEncoder(format)
	output := asOutput(w)
	output.reportOmissions(encoder)
	log := zap.New(zapcore.NewCore(encoder, output, threshold))

	klogThreshold := threshold
	if threshold == zapcore.DebugLevel {
		klogThreshold = -klogVerbosity // zapr writes V(n) at level -n
	}
	clientGo := zap.New(clientGoCore{zapcore.NewCore(encoder.Clone(), output, klogThreshold)}).Named("client-go")
	setKlogVerbosity(level)
	klog.SetLoggerWithOptions(zapr.NewLogger(clientGo), klog.ContextualLogger(true))
	zap.RedirectStdLog(log.Named("stdlib"))
	return log
}

// clientGoCore leaves out what package requestinfo logs of each malformed query: a client chooses
// how many there are, and what is in them.
type clientGoCore struct{ zapcore.Core }

// Check implements zapcore.Core.
func (c clientGoCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if entry.Message == "Couldn't parse request" {
		return checked
	}
	return c.Core.Check(entry, checked)
}

// With implements zapcore.Core.
func (c clientGoCore) With(fields []zapcore.Field) zapcore.Core {
	return clientGoCore{c.Core.With(fields)}
}

// setKlogVerbosity lets klog.V(n) through up to n; klog keeps that number behind a flag only.
func setKlogVerbosity(level string) {
	verbosity := 0
	if level == "debug" {
		verbosity = klogVerbosity
	}
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	_ = flags.Set("v", strconv.Itoa(verbosity)) // the flag exists and takes any number
}

func newEncoder(format string) zapcore.Encoder {
	config := zap.NewProductionEncoderConfig()
	config.TimeKey = "time"
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	config.EncodeDuration = zapcore.StringDurationEncoder
	config.EncodeLevel = encodeLevel
	if format == "console" {
		config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		return lineEncoder{zapcore.NewConsoleEncoder(config)}
	}
	return lineEncoder{zapcore.NewJSONEncoder(config)}
}

// encodeLevel calls all verbosities of klog debug; zap has no names for them.
func encodeLevel(level zapcore.Level, enc zapcore.PrimitiveArrayEncoder) {
	zapcore.LowercaseLevelEncoder(max(level, zapcore.DebugLevel), enc)
}
