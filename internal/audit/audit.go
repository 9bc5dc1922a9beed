// Package audit keeps the audit log of requests that are answered from memory, which are not in the
// audit log of kube-apiserver. It has the same form: events of audit.k8s.io/v1, one JSON document a
// line, chosen by a policy of the same kind.
//
// Invariant: if the log fails closed, the events of an answer are written before its first byte. If
// they could not be written in time, the caller gets an error, and passes the request through, so
// that it is in the audit log of the API server. Otherwise this holds as long as the log can be
// written; an answer waits for a log that blocks for a moment only.
//
// The policy is read and applied by kube-apiserver's own code. Its pipeline of sinks is not used:
// it writes an event at the beginning of a request, when it is not decided yet whether the request
// is answered from memory, and it does not report why an event could not be written.
package audit

import (
	rules "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
)

// Logger is the audit log. Any number of goroutines write to it.
type Logger struct {
	// Static after construction.
	rules      rules.PolicyRuleEvaluator
	failClosed bool
	metrics    *Metrics
	queue      *queue
}

// New makes a Logger. Close it.
func New(o Options) *Logger {
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return &Logger{rules: policy.NewPolicyRuleEvaluator(o.Policy.DeepCopy()), failClosed: o.FailClosed, metrics: o.Metrics,
		queue: newQueue(o)}
}

// FailClosed reports that nothing is to be answered from memory whose events could not be written.
func (l *Logger) FailClosed() bool { return l.failClosed }

// Progress is how many writes of the log have ended, and whether one is under way.
func (l *Logger) Progress() (writes uint64, working bool) {
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	return l.queue.mu.writes, len(l.queue.mu.writing) > 0
}

// Close writes what is still to be written, and closes where it went. It waits for a bounded time,
// and says how many events are lost by that.
func (l *Logger) Close() error { return l.queue.close() }

// Passed counts a request that was passed through because its events could not be written.
func (l *Logger) Passed() { l.metrics.passed.Inc() }
