package audit

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	internal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

const (
	// MaxObject is the largest answer, in bytes of JSON, that is put on record whole: any object, and
	// lists of some hundreds.
	MaxObject = 2 << 20

	decisionAnnotation  = "authorization.k8s.io/decision"
	reasonAnnotation    = "authorization.k8s.io/reason"
	truncatedAnnotation = "audit.k8s.io/truncated" // as of kube-apiserver's own truncation

	stageReceived = internal.StageRequestReceived
	stageStarted  = internal.StageResponseStarted
	stageComplete = internal.StageResponseComplete
	stagePanic    = internal.StagePanic
)

// ResponseInfo is what a request was answered.
type ResponseInfo struct {
	Code   int
	Status *metav1.Status // of a failure that is a Status
	// Object is the answer as JSON, and Truncated says that it was left out. Both count only if the
	// entry is Whole.
	Object    []byte
	Truncated bool
}

// RequestRecord is the record of one request. It belongs to the goroutine that answers the request,
// and has one last event.
type RequestRecord struct {
	log               *Logger
	omitStages        []internal.Stage
	omitManagedFields bool
	event             auditv1.Event // without a stage
}

// Entry begins the record of a request; nil: the policy wants none.
func (l *Logger) Entry(r RequestInfo) *RequestRecord {
	config := l.rules.EvaluatePolicyRule(attributesOf(r))
	if config.Level == internal.LevelNone {
		return nil
	}
	e := &RequestRecord{log: l, omitStages: config.OmitStages, omitManagedFields: config.OmitManagedFields}
	e.event = auditv1.Event{
		TypeMeta:                 metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:                    auditv1.Level(config.Level),
		AuditID:                  types.UID(r.ID),
		RequestURI:               r.URI,
		Verb:                     r.What.Verb,
		User:                     userOf(r.Who),
		SourceIPs:                sourcesOf(r),
		UserAgent:                agentOf(r.Header),
		ObjectRef:                objectOf(r.What),
		RequestReceivedTimestamp: metav1.NewMicroTime(r.Received),
	}
	if r.Decision != "" {
		e.event.Annotations = map[string]string{decisionAnnotation: r.Decision, reasonAnnotation: r.Reason}
	}
	return e
}

// Whole reports that the answer itself is wanted.
func (e *RequestRecord) Whole() bool {
	return e != nil && internal.Level(e.event.Level) == internal.LevelRequestResponse
}

// Answered puts on record that a request came, and what it is going to be answered. That of a watch
// counts as one that lasts, short as it is.
func (e *RequestRecord) Answered(r ResponseInfo) error {
	e.respond(r)
	if e.event.Verb == "watch" {
		return e.emit(stageReceived, stageStarted, stageComplete)
	}
	return e.emit(stageReceived, stageComplete)
}

// Refused records a request that failed authentication, for which kube-apiserver has a single
// event.
func (e *RequestRecord) Refused(r ResponseInfo) error {
	e.respond(r)
	return e.emit(stageStarted)
}

// Started records a request whose answer lasts and has this code, before it begins.
func (e *RequestRecord) Started(code int) error {
	e.respond(ResponseInfo{Code: code})
	return e.emit(stageReceived, stageStarted)
}

// Ended records the end of an answer that lasts. It does not wait until that is written.
func (e *RequestRecord) Ended() {
	if e != nil && !slices.Contains(e.omitStages, stageComplete) {
		// A failure is counted and logged: the answer has been sent.
		_, _ = e.log.queue.add(&batch{ended: e, size: e.size(), events: 1, at: time.Now()})
	}
}

// size is about how many bytes a record without an answer holds. What the client may make long
// counts as it is.
func (e *RequestRecord) size() int {
	const fixed, address = 256, 32
	return fixed + len(e.event.AuditID) + len(e.event.RequestURI) + len(e.event.UserAgent) +
		address*len(e.event.SourceIPs)
}

// Panicked records a request whose handler panicked, without the value of the panic.
func (e *RequestRecord) Panicked() error {
	e.respond(ResponseInfo{Code: http.StatusInternalServerError, Status: &metav1.Status{
		Code: http.StatusInternalServerError, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
		Message: "the proxy panicked",
	}})
	return e.emit(stageReceived, stagePanic)
}

// respond writes the answer into the event: of a Status what kube-apiserver selects, which is
// bounded.
func (e *RequestRecord) respond(r ResponseInfo) {
	e.event.ResponseStatus = &metav1.Status{Code: int32(r.Code)} // #nosec G115 -- a status code
	if s := r.Status; s != nil {
		e.event.ResponseStatus = &metav1.Status{Status: s.Status, Message: s.Message, Reason: s.Reason, Details: s.Details,
			Code: s.Code}
	}
	if !e.Whole() {
		return
	}
	object := r.Object
	if e.omitManagedFields && object != nil {
		object = withoutManagedFields(object)
	}
	if object != nil {
		e.event.ResponseObject = &runtime.Unknown{Raw: object, ContentType: runtime.ContentTypeJSON}
	}
	if r.Truncated {
		if e.event.Annotations == nil {
			e.event.Annotations = map[string]string{}
		}
		e.event.Annotations[truncatedAnnotation] = "true"
	}
}

// emit writes the events of some stages, those that the policy wants, all at once: either all of
// them are on record, or none is known to be.
func (e *RequestRecord) emit(stages ...internal.Stage) error {
	stages = slices.DeleteFunc(stages, func(stage internal.Stage) bool { return slices.Contains(e.omitStages, stage) })
	if len(stages) == 0 {
		return nil
	}
	var lines []byte
	for _, stage := range stages {
		line, err := e.line(stage, time.Now())
		if err != nil {
			e.log.metrics.failures.Add(float64(len(stages)))
			return err
		}
		lines = append(lines, line...)
	}
	return e.log.queue.write(lines, len(stages))
}

// line is the event of a stage.
func (e *RequestRecord) line(stage internal.Stage, at time.Time) ([]byte, error) {
	line, err := json.Marshal(e.eventAt(stage, at))
	if err != nil { // the answer is no JSON, and everything else is strings and numbers
		return nil, err
	}
	return append(line, '\n'), nil
}

// eventAt is the event of a stage. The first stage does not know the answer.
func (e *RequestRecord) eventAt(stage internal.Stage, now time.Time) *auditv1.Event {
	event := e.event
	event.Stage, event.StageTimestamp = auditv1.Stage(stage), metav1.NewMicroTime(now)
	if stage == stageReceived {
		event.StageTimestamp = event.RequestReceivedTimestamp
		event.ResponseStatus, event.ResponseObject, event.Annotations = nil, nil, nil
	}
	return &event
}
