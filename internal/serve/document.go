package serve

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/audit"
	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/object"
	"spillway/internal/plan"
	"spillway/internal/source"
)

// answerError answers in upstream's words for an error, unless only upstream knows them.
func (r *request) answerError(err error) outcome {
	var known apierrors.APIStatus
	if r.plan.Source.Resource().IsClosed() || !errors.As(err, &known) {
		return unsettled
	}
	return r.refuse(apistatus.Of(err))
}

// refuse answers a request for a mirrored resource with a Status.
func (r *request) refuse(status *metav1.Status) outcome {
	r.server.metrics.rejected.WithLabelValues(r.resource(), strconv.Itoa(int(status.Code))).Inc()
	a := apistatus.FailureAs(r.plan.Failure, status)
	if !r.plan.Early {
		r.sourceHeaders(a.SetField)
	}
	return answerOutcome(a)
}

// newDocument counts an answer from memory, and returns it without its body.
func (r *request) newDocument(verb string, isCompressed bool) *apistatus.Answer {
	r.server.metrics.countAnswer(r.plan, verb)
	a := apistatus.NewAnswer(http.StatusOK, r.plan.MediaType())
	r.sourceHeaders(a.SetField)
	if isCompressed {
		a.SetField("Content-Encoding", "gzip")
		a.SetField("Vary", "Accept-Encoding")
	}
	return a
}

// withdrawEncoding notes that an answer could not be made in an encoding: from now on upstream
// makes such answers. Clients have missed nothing: a watch ended before the event, and no LIST or
// GET had begun.
func (s *Server) withdrawEncoding(of *source.Source, e object.Encoding, cause error) {
	resource, encoding := of.Resource().Info.String(), plan.EncodingName(e)
	s.metrics.unencodable.WithLabelValues(resource, encoding).Inc()
	if of.Codec.Withdraw(e.Format, e.View) {
		s.log.Warn("cannot encode what upstream sends; such requests pass through from now on",
			zap.String("resource", resource), zap.String("encoding", encoding), zap.Error(cause))
	}
}

// gzipThresholdBytes is how large a body must be for upstream to compress it (W-6).
const gzipThresholdBytes = 128 << 10

// shouldCompress reports whether a document of size bytes is to be compressed.
func shouldCompress(f plan.AnswerForm, size int) bool { return f.Gzip && size > gzipThresholdBytes }

// jsonOfList is a list for the audit log, as JSON in the view that the client gets; nil if it is
// too large to be kept, or cannot be made.
func jsonOfList(p plan.Plan, snapshot *cache.Snapshot) []byte {
	items, meta := collect(p, snapshot)
	form := p.Encoding
	form.Format = object.JSON
	list, err := codec.NewList(form, p.Source.Resource().Info, items, meta)
	if err != nil || list.Size() > audit.MaxObject {
		return nil
	}
	var document bytes.Buffer
	document.Grow(list.Size())
	if _, err := list.WriteTo(&document); err != nil {
		return nil
	}
	return document.Bytes()
}

// jsonOfObject is jsonOfList for a GET.
func jsonOfObject(p plan.Plan, o *object.Object) []byte {
	form := p.Encoding
	form.Format = object.JSON
	document, err := codec.Append(nil, form, o, o.RV)
	if err != nil {
		return nil
	}
	return document
}
