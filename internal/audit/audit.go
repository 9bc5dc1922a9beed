// Package audit keeps the audit log of what is answered from memory. kube-apiserver never sees those requests, so whoever needs a record of
// who read what gets it here, in the same words: events of audit.k8s.io/v1, one JSON document a line, chosen by a policy of the same kind.
//
// Invariant: what is to be on record is written before the first byte of the answer is. An answer whose events could not be written is told
// of by an error, so that upstream can be asked for it instead, which keeps its own record.
//
// The policy is read and applied by kube-apiserver's own code. Its pipeline of sinks is not used: it hands an event on at the beginning of
// a request, when nobody knows yet who is going to answer it here, and it does not say why one could not be written.
package audit

import (
	"io"
	"sync"

	"go.uber.org/zap"
	internal "k8s.io/apiserver/pkg/apis/audit"
	rules "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
)

// Policy says which requests are put on record, and how much of them.
type Policy = internal.Policy

// ParsePolicy reads a policy as kube-apiserver does: one with fields that are not known is taken, with a warning in the log.
func ParsePolicy(text []byte) (*Policy, error) { return policy.LoadPolicyFromBytes(text) }

// Options configure a Log.
type Options struct {
	Policy *Policy
	// Out is where events are written, each write some whole lines. Closed with the Log if it can be.
	Out io.Writer
	// Required says that nothing is to be answered from memory whose events could not be written.
	Required bool
	Metrics  *Metrics // nil: nothing is registered
	Log      *zap.Logger
}

// Log is the audit log. Any number of goroutines write to it, one after the other.
type Log struct {
	// Static after construction.
	rules    rules.PolicyRuleEvaluator
	required bool
	metrics  *Metrics
	log      *zap.Logger
	later    *later

	mu struct {
		sync.Mutex
		out     io.Writer
		torn    bool // the last line has no end
		failing bool // the last write failed
	}
}

// New makes a Log. Close it.
func New(o Options) *Log {
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	l := &Log{rules: policy.NewPolicyRuleEvaluator(o.Policy.DeepCopy()), required: o.Required, metrics: o.Metrics, log: o.Log}
	l.mu.out = o.Out
	l.later = newLater(l)
	return l
}

// Required reports that nothing is to be answered from memory whose events could not be written.
func (l *Log) Required() bool { return l.required }

// Close writes what is still to be written, and closes where it went.
func (l *Log) Close() error {
	l.later.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if out, ok := l.mu.out.(io.Closer); ok {
		return out.Close()
	}
	return nil
}

// write writes the lines of some events at once.
func (l *Log) write(lines []byte, events int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.torn {
		lines = append([]byte{'\n'}, lines...)
	}
	n, err := l.mu.out.Write(lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	l.mu.torn = n > 0 && lines[n-1] != '\n' || n == 0 && l.mu.torn
	l.tellLocked(err)
	if err != nil {
		l.metrics.failures.Add(float64(events))
		return err
	}
	l.metrics.events.Add(float64(events))
	return nil
}

// tellLocked logs that events cannot be written, or can be again: once, not for each of them.
func (l *Log) tellLocked(err error) {
	switch failing := err != nil; {
	case failing == l.mu.failing:
		return
	case failing:
		l.log.Error("the audit log cannot be written", zap.Error(err), zap.Bool("passingThrough", l.required))
	default:
		l.log.Info("the audit log is written again")
	}
	l.mu.failing = err != nil
}
