package serve

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/flowcontrol"
	"spillway/internal/object"
	"spillway/internal/plan"
	"spillway/internal/source"
	"spillway/internal/watch"
)

// answerList answers a LIST from a snapshot.
func (r *request) answerList() outcome {
	s, p := r.server, r.plan
	snapshot, err := r.chooseSnapshot()
	switch {
	case err != nil && p.Action == plan.FromCacheProven:
		return unsettled
	case err != nil:
		return r.answerError(err)
	}
	made, beyond, err := r.composeLimited(snapshot)
	switch {
	case beyond != nil:
		return answerOutcome(apistatus.Limited(p.Failure, s.opts.Limiter.Closed(), beyond.RetryAfter))
	case err != nil:
		s.withdrawEncoding(p.Source, p.Encoding, err)
		return unsettled
	}
	r.observeList(listFromMemory)
	a := r.newDocument("list", made.compressed)
	a.Stream, a.Size = &listBody{encodedList: made, server: s, resource: r.resource(), client: r.Address().String()},
		int64(made.body.Size())
	return outcome{answer: &answer{Answer: a, document: func() []byte { return jsonOf(p, snapshot) }}}
}

// encodedList is a list that only has to be written.
type encodedList struct {
	body interface {
		io.WriterTo
		Size() int
	}
	compressed bool
	list       *codec.List        // yet to be compressed; nil: nothing is
	pass       flowcontrol.Permit // of the bytes of large answers
}

// composeLimited makes a list within the limits. While it waits for its turn, it is let go of but
// for its state, and then made again.
func (r *request) composeLimited(snapshot *cache.Snapshot) (encodedList, *flowcontrol.Refusal, error) {
	s, p := r.server, r.plan
	made, err := s.composeList(p, snapshot)
	if err != nil || !flowcontrol.IsLarge(int64(made.body.Size())) {
		s.compressList(&made)
		return made, nil, err
	}
	width := flowcontrol.Width(int64(made.body.Size()), made.list != nil)
	pass, ok := s.opts.Limiter.TryList(r.flow, width)
	if !ok {
		var refusal *flowcontrol.Refusal
		made = encodedList{}
		if pass, refusal = s.opts.Limiter.AdmitList(r.OnDisconnect, r.flow, width); refusal != nil {
			return encodedList{}, refusal, nil
		}
	}
	handed := false
	defer func() {
		if !handed {
			pass.Release()
		}
	}()
	if !ok {
		if made, err = s.composeList(p, snapshot); err != nil {
			return encodedList{}, nil, err
		}
	}
	s.compressList(&made)
	made.pass, handed = pass, true
	return made, nil, nil
}

// largeStateObjects is how many objects a list looks at that waits for a seat.
const largeStateObjects = 500

// composeList makes a list but for its compression, on a seat if it is large.
func (s *Server) composeList(p plan.Plan, snapshot *cache.Snapshot) (encodedList, error) {
	if snapshot.Len() >= largeStateObjects {
		s.seats.Acquire()
		defer s.seats.Release()
	}
	items, meta := collect(p, snapshot)
	list, err := codec.NewList(p.Encoding, p.Source.Resource().Info, items, meta)
	if err != nil {
		return encodedList{}, err
	}
	made := encodedList{body: list}
	if shouldCompress(p.AnswerForm, list.Size()) {
		made.list = list
	}
	return made, nil
}

// compressList compresses what is to be compressed, on a seat.
func (s *Server) compressList(made *encodedList) {
	if made.list == nil {
		return
	}
	s.seats.Acquire()
	defer s.seats.Release()
	made.body, made.compressed, made.list = made.list.Compress(), true, nil
}

// answerGet answers a GET of one object.
func (r *request) answerGet() outcome {
	p := r.plan
	state, err := r.awaitRV(p.Get.RV, p.Get.Hurried)
	if err != nil {
		return r.answerError(err)
	}
	o, ok := state.Get(p.Get.Key)
	if !ok {
		return r.answerError(apierrors.NewNotFound(p.Source.Resource().Info.GVR.GroupResource(), p.Get.Name))
	}
	document, err := codec.Append(make([]byte, 0, o.Size()+1), p.Encoding, o, o.RV)
	if err != nil {
		r.server.withdrawEncoding(p.Source, p.Encoding, err)
		return unsettled
	}
	if p.Encoding.Format == object.JSON {
		document = append(document, '\n')
	}
	compressed := shouldCompress(p.AnswerForm, len(document))
	if compressed {
		document = codec.AppendMember(nil, document)
	}
	a := r.newDocument("get", compressed)
	a.Body = document
	return outcome{answer: &answer{Answer: a, document: func() []byte { return jsonOfObject(p, o) }}}
}

// answerError answers with upstream's words for an error, unless only upstream has them.
func (r *request) answerError(err error) outcome {
	var known apierrors.APIStatus
	if r.plan.Source.Resource().IsClosed() || !errors.As(err, &known) {
		return unsettled
	}
	return r.refuse(apistatus.Of(err))
}

// refuse answers a request of a mirrored resource with a Status.
func (r *request) refuse(status *metav1.Status) outcome {
	r.server.metrics.refused.WithLabelValues(r.resource(), strconv.Itoa(int(status.Code))).Inc()
	a := apistatus.FailureAs(r.plan.Failure, status)
	if !r.plan.Early {
		r.sourceHeaders(a.SetField)
	}
	return answerOutcome(a)
}

// newDocument counts an answer from memory, and is that answer without its body.
func (r *request) newDocument(verb string, compressed bool) *apistatus.Answer {
	r.server.metrics.countAnswer(r.plan, verb)
	a := apistatus.NewAnswer(http.StatusOK, r.plan.MediaType())
	r.sourceHeaders(a.SetField)
	if compressed {
		a.SetField("Content-Encoding", "gzip")
		a.SetField("Vary", "Accept-Encoding")
	}
	return a
}

// chooseSnapshot is the state that a LIST asks for.
func (r *request) chooseSnapshot() (*cache.Snapshot, error) {
	if r.plan.Action == plan.FromCacheProven {
		return r.proveState()
	}
	l := r.plan.List
	state, err := r.awaitRV(l.RV, l.Hurried)
	if err != nil || !l.Exact || state.RV == l.RV {
		return state, err
	}
	return r.plan.Source.Resource().SnapshotAt(l.RV)
}

// awaitRV is a state at or above a resourceVersion, for a request that is answered at once. A
// client in a hurry is not kept waiting here.
func (r *request) awaitRV(rv uint64, hurried bool) (*cache.Snapshot, error) {
	from := r.plan.Source
	if !hurried {
		return from.AwaitRV(r.server.base, rv, source.VerdictTimeout)
	}
	ctx, cancel := context.WithTimeout(r.server.base, source.HurriedArrivalTimeout)
	defer cancel()
	return from.Resource().AwaitSnapshot(ctx, rv)
}

// collect collects a page: at most limit matching items, a continue token if keys remain in the
// scanned range after the last one, matching or not, and how many items remain if nothing is
// selected (W-69, W-70).
func collect(p plan.Plan, snapshot *cache.Snapshot) ([]*object.Object, metav1.ListMeta) {
	var items []*object.Object
	l := p.List
	snapshot.Scan(p.Selector, l.Start, func(o *object.Object) bool {
		items = append(items, o)
		return l.Limit == 0 || int64(len(items)) < l.Limit
	})
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(snapshot.RV, 10)}
	if n := len(items); l.Limit > 0 && int64(n) == l.Limit {
		meta.Continue, meta.RemainingItemCount = nextPage(p, snapshot, items[n-1].Key)
	}
	return items, meta
}

// nextPage is the token of the page after the key last, "" if nothing remains in scope, and the
// number of items that remain, nil if it is not told.
func nextPage(p plan.Plan, snapshot *cache.Snapshot, last string) (string, *int64) {
	sel := p.Selector
	remaining := new(int64)
	snapshot.Scan(p.List.Scanned, last+"\x00", func(*object.Object) bool {
		*remaining++
		return sel.ScopeOnly()
	})
	if *remaining == 0 {
		return "", nil
	}
	if sel.Namespace != "" {
		last = strings.TrimPrefix(last, sel.Namespace+"/")
	}
	if !sel.ScopeOnly() {
		remaining = nil
	}
	return plan.EncodeContinue(snapshot.RV, last), remaining
}

// listBody is the body of a LIST while it is written. A large one has a pass until it is closed.
type listBody struct {
	encodedList
	server   *Server
	resource string
	client   string
}

// WriteTo writes the list. It is logged and counted if the client is evicted because it does not
// take it. That a client leaves is its own affair.
func (b *listBody) WriteTo(w io.Writer) (int64, error) {
	if b.pass != (flowcontrol.Permit{}) {
		b.server.eviction.BeginState()
		defer b.server.eviction.EndState()
	}
	n, err := b.body.WriteTo(w)
	if err != nil &&
		watch.LogEviction(b.server.log, watch.ReasonOf(err), zap.String("verb", "list"), zap.String("resource", b.resource),
			zap.String("client", b.client), zap.Int64("bytes", n)) {
		b.server.metrics.cut.WithLabelValues(b.resource, string(watch.ReasonOf(err))).Inc()
	}
	return n, err
}

// Close gives back the pass.
func (b *listBody) Close() error {
	b.pass.Release()
	return nil
}

// withdrawEncoding notes that an answer could not be made in the requested encoding: from now on
// upstream makes it. Nothing was left out: a watch ended before the event, a LIST or GET was not
// begun.
func (s *Server) withdrawEncoding(of *source.Source, e object.Encoding, cause error) {
	resource, encoding := of.Resource().Info.String(), plan.EncodingName(e)
	s.metrics.unencodable.WithLabelValues(resource, encoding).Inc()
	if of.Codec.Withdraw(e.Format, e.View) {
		s.log.Warn("cannot encode what upstream sends; such requests pass through from now on",
			zap.String("resource", resource), zap.String("encoding", encoding), zap.Error(cause))
	}
}

// gzipThreshold is how large a body must be for upstream to compress it (W-6).
const gzipThreshold = 128 << 10

// shouldCompress reports whether a document of size bytes is to be compressed.
func shouldCompress(f plan.AnswerForm, size int) bool { return f.Gzip && size > gzipThreshold }
