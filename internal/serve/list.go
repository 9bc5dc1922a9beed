package serve

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/cache"
	"spillway/internal/clientconn"
	"spillway/internal/codec"
	"spillway/internal/flowcontrol"
	"spillway/internal/object"
	"spillway/internal/plan"
	"spillway/internal/source"
	"spillway/internal/watch"
)

// list answers a LIST from a snapshot. It reports false, having written nothing, if upstream must
// answer.
func (s *Server) list(c call, a answering, v requester) bool {
	p := a.Plan
	snapshot, err := s.snapshot(p)
	if err != nil {
		return p.Action != plan.FromCacheProven && s.refused(c, a, err)
	}
	made, refusal, err := s.composeLimited(c, p, snapshot, v.flow)
	switch {
	case refusal != nil:
		apistatus.WriteLimited(c, p.Failure, s.opts.Limiter.Closed(), refusal.RetryAfter)
		return true
	case err != nil:
		s.withdraw(p.Source, p.Encoding, err)
		return false
	}
	if r := recordOf(c); r.whole() {
		r.keep(jsonOf(p, snapshot))
	}
	s.listed(v, listedMemory)
	s.begin(c, a, "list")
	documentHeaders(c, p, made.compressed)
	body := &countedBody{WriterTo: made.limited(s.eviction), server: s, resource: p.Source.Resource().Info.String(),
		client: c.Address().String()}
	c.Stream(http.StatusOK, body, int64(made.body.Size()))
	return true
}

// encodedList is a list that only has to be written.
type encodedList struct {
	body interface {
		io.WriterTo
		Size() int
	}
	compressed bool
	list       *codec.List      // yet to be compressed; nil: nothing is
	pass       flowcontrol.Pass // of the bytes of large answers
}

// composeLimited makes a list within the limits. While it waits for its turn, it is let go of but
// for its state, and then made again.
func (s *Server) composeLimited(c call, p plan.Plan, snapshot *cache.Snapshot, flow flowcontrol.Flow) (
	encodedList, *flowcontrol.Refusal, error,
) {
	made, err := s.compose(p, snapshot)
	if err != nil || !flowcontrol.IsLarge(int64(made.body.Size())) {
		s.compress(&made)
		return made, nil, err
	}
	width := flowcontrol.Width(int64(made.body.Size()), made.list != nil)
	pass, ok := s.opts.Limiter.TryList(flow, width)
	if !ok {
		var refusal *flowcontrol.Refusal
		made = encodedList{}
		if pass, refusal = s.opts.Limiter.AdmitList(c.Departs, flow, width); refusal != nil {
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
		if made, err = s.compose(p, snapshot); err != nil {
			return encodedList{}, nil, err
		}
	}
	s.compress(&made)
	made.pass, handed = pass, true
	return made, nil, nil
}

// largeState is how many objects a list looks at that waits for a seat.
const largeState = 500

// compose makes a list but for its compression, on a seat if it is large.
func (s *Server) compose(p plan.Plan, snapshot *cache.Snapshot) (encodedList, error) {
	if snapshot.Len() >= largeState {
		s.seats.Acquire()
		defer s.seats.Release()
	}
	items, meta := collect(p, snapshot)
	list, err := codec.NewList(p.Encoding, p.Source.Resource().Info, items, meta)
	if err != nil {
		return encodedList{}, err
	}
	made := encodedList{body: list}
	if compresses(p.AnswerForm, list.Size()) {
		made.list = list
	}
	return made, nil
}

// compress compresses what is to be compressed, on a seat.
func (s *Server) compress(made *encodedList) {
	if made.list == nil {
		return
	}
	s.seats.Acquire()
	defer s.seats.Release()
	made.body, made.compressed, made.list = made.list.Compress(), true, nil
}

// limited is the body, which gives back the pass when it is closed.
func (m *encodedList) limited(e *clientconn.EvictionPolicy) io.WriterTo {
	if m.pass == (flowcontrol.Pass{}) {
		return m.body
	}
	return &limitedBody{WriterTo: m.body, pass: m.pass, eviction: e}
}

// limitedBody is the body of an answer that has a pass until it is closed.
type limitedBody struct {
	io.WriterTo
	pass     flowcontrol.Pass
	eviction *clientconn.EvictionPolicy
}

// WriteTo implements io.WriterTo.
func (b *limitedBody) WriteTo(w io.Writer) (int64, error) {
	b.eviction.BeginState()
	defer b.eviction.EndState()
	return b.WriterTo.WriteTo(w)
}

// Close implements io.Closer.
func (b *limitedBody) Close() error {
	b.pass.Release()
	return nil
}

// get answers a GET of one object. It reports false if upstream must answer.
func (s *Server) get(w apistatus.Responder, a answering) bool {
	p := a.Plan
	state, err := s.reach(p.Source, p.Get.RV, p.Get.Hurried)
	if err != nil {
		return s.refused(w, a, err)
	}
	o, ok := state.Get(p.Get.Key)
	if !ok {
		return s.refused(w, a, apierrors.NewNotFound(p.Source.Resource().Info.GVR.GroupResource(), p.Get.Name))
	}
	document, err := codec.Append(make([]byte, 0, o.Size()+1), p.Encoding, o, o.RV)
	if err != nil {
		s.withdraw(p.Source, p.Encoding, err)
		return false
	}
	if p.Encoding.Format == object.JSON {
		document = append(document, '\n')
	}
	if r := recordOf(w); r.whole() {
		r.keep(jsonOfObject(p, o))
	}
	s.begin(w, a, "get")
	writeDocument(w, p, document)
	return true
}

// snapshot is the state that a LIST asks for.
func (s *Server) snapshot(p plan.Plan) (*cache.Snapshot, error) {
	if p.Action == plan.FromCacheProven {
		return s.recent(p)
	}
	l := p.List
	state, err := s.reach(p.Source, l.RV, l.Hurried)
	if err != nil || !l.Exact || state.RV == l.RV {
		return state, err
	}
	return p.Source.Resource().At(l.RV)
}

// reach is arrive for a request that is answered at once. A client in a hurry is not kept waiting
// here.
func (s *Server) reach(from *source.Source, rv uint64, hurried bool) (*cache.Snapshot, error) {
	if !hurried {
		return from.AwaitRV(s.base, rv, source.VerdictTimeout)
	}
	ctx, cancel := context.WithTimeout(s.base, source.HurriedArrivalTimeout)
	defer cancel()
	return from.Resource().StateThrough(ctx, rv)
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

// countedBody is the body of a LIST, which is logged and counted if it is cut since its client does
// not take it. That a client leaves is its own affair.
type countedBody struct {
	io.WriterTo
	server   *Server
	resource string
	client   string
}

// WriteTo implements io.WriterTo.
func (b *countedBody) WriteTo(w io.Writer) (int64, error) {
	n, err := b.WriterTo.WriteTo(w)
	if err != nil &&
		watch.LogEviction(b.server.log, watch.ReasonOf(err), zap.String("verb", "list"), zap.String("resource", b.resource),
			zap.String("client", b.client), zap.Int64("bytes", n)) {
		b.server.metrics.cut.WithLabelValues(b.resource, string(watch.ReasonOf(err))).Inc()
	}
	return n, err
}

// Close implements io.Closer.
func (b *countedBody) Close() error { return apistatus.CloseBody(b.WriterTo) }

// withdraw notes that an answer could not be made in the requested encoding: from now on upstream
// makes it. Nothing was left out: a watch ended before the event, a LIST or GET was not begun.
func (s *Server) withdraw(of *source.Source, e object.Encoding, cause error) {
	resource, encoding := of.Resource().Info.String(), plan.EncodingName(e)
	s.metrics.unencodable.WithLabelValues(resource, encoding).Inc()
	if of.Codec.Withdraw(e.Format, e.View) {
		s.log.Warn("cannot encode what upstream sends; such requests pass through from now on",
			zap.String("resource", resource), zap.String("encoding", encoding), zap.Error(cause))
	}
}

// gzipThreshold is how large a body must be for upstream to compress it (W-6).
const gzipThreshold = 128 << 10

// begin counts an answer from memory, and sets what the source has to say on it.
func (s *Server) begin(w apistatus.Responder, p answering, verb string) {
	s.metrics.answered(p.Plan, verb)
	p.headers(w.SetHeader)
}

// compresses reports whether a document of size bytes is to be compressed.
func compresses(f plan.AnswerForm, size int) bool { return f.Gzip && size > gzipThreshold }

// writeDocument answers with a document.
func writeDocument(w apistatus.Responder, p plan.Plan, document []byte) {
	compressed := compresses(p.AnswerForm, len(document))
	if compressed {
		document = codec.AppendMember(nil, document)
	}
	documentHeaders(w, p, compressed)
	w.Send(http.StatusOK, document)
}

// documentHeaders begins the answer with a document.
func documentHeaders(w apistatus.Responder, p plan.Plan, compressed bool) {
	apistatus.SetCommonHeaders(w, p.MediaType())
	if compressed {
		w.SetHeader("Content-Encoding", "gzip")
		w.SetHeader("Vary", "Accept-Encoding")
	}
}
