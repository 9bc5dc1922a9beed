package serve

import (
	"io"
	"strconv"
	"strings"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/flowcontrol"
	"spillway/internal/object"
	"spillway/internal/plan"
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
	made, refusal, err := r.composeLimited(snapshot)
	switch {
	case refusal != nil:
		return answerOutcome(apistatus.Limited(p.Failure, s.opts.Limiter.Closed(), refusal.RetryAfter))
	case err != nil:
		s.withdrawEncoding(p.Source, p.Encoding, err)
		return unsettled
	}
	a := r.newDocument("list", made.isCompressed)
	a.Stream, a.Size = &listBody{encodedList: made, server: s, resource: r.resource(), client: r.Address().String()},
		int64(made.body.Size())
	return outcome{answer: &answer{Answer: a, listSource: listFromMemory,
		document: func() []byte { return jsonOfList(p, snapshot) }}}
}

// encodedList is a list that only has to be written.
type encodedList struct {
	body interface {
		io.WriterTo
		Size() int
	}
	isCompressed bool
	uncompressed *codec.List        // yet to be compressed; nil: nothing is
	permit       flowcontrol.Permit // of the bytes of large answers
}

// composeLimited makes a list within the limits. If it has to wait for its turn, only the snapshot
// is kept, and the list is made again.
func (r *request) composeLimited(snapshot *cache.Snapshot) (encodedList, *flowcontrol.Refusal, error) {
	s := r.server
	made, err := s.composeList(r.plan, snapshot)
	if err != nil {
		return encodedList{}, nil, err
	}
	var permit flowcontrol.Permit
	isHandedOver := false
	defer func() {
		if !isHandedOver {
			permit.Release()
		}
	}()
	if size := int64(made.body.Size()); flowcontrol.IsLarge(size) {
		width := flowcontrol.Width(size, made.uncompressed != nil)
		var ok bool
		if permit, ok = s.opts.Limiter.TryList(r.flow, width); !ok {
			made = encodedList{}
			var refusal *flowcontrol.Refusal
			if permit, refusal = s.opts.Limiter.AdmitList(r.OnDisconnect, r.flow, width); refusal != nil {
				return encodedList{}, refusal, nil
			}
			if made, err = s.composeList(r.plan, snapshot); err != nil {
				return encodedList{}, nil, err
			}
		}
	}
	s.compressList(&made)
	made.permit, isHandedOver = permit, true
	return made, nil, nil
}

// largeStateObjects is how many objects make a list wait for a CPU permit.
const largeStateObjects = 500

// composeList makes a list but for its compression, with a CPU permit if it is large.
func (s *Server) composeList(p plan.Plan, snapshot *cache.Snapshot) (encodedList, error) {
	if snapshot.Len() >= largeStateObjects {
		s.cpu.Acquire()
		defer s.cpu.Release()
	}
	items, meta := collect(p, snapshot)
	list, err := codec.NewList(p.Encoding, p.Source.Resource().Info, items, meta)
	if err != nil {
		return encodedList{}, err
	}
	made := encodedList{body: list}
	if shouldCompress(p.AnswerForm, list.Size()) {
		made.uncompressed = list
	}
	return made, nil
}

// compressList compresses what is to be compressed, with a CPU permit.
func (s *Server) compressList(made *encodedList) {
	if made.uncompressed == nil {
		return
	}
	s.cpu.Acquire()
	defer s.cpu.Release()
	made.body, made.isCompressed, made.uncompressed = made.uncompressed.Compress(), true, nil
}

// chooseSnapshot is the state for a LIST.
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

// collect collects a page: at most limit matching items, a continue token if keys remain in the
// scanned range after the last one, matching or not, and the number of items that remain if the
// selector is a scope alone (W-69, W-70).
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
// number of items that remain, nil if the list does not tell it.
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

// listBody is the body of a LIST while it is written. A large one has a permit until it is closed.
type listBody struct {
	encodedList
	server   *Server
	resource string
	client   string
}

// WriteTo writes the list, and logs and counts an eviction of its client. It does not report a
// client that leaves.
func (b *listBody) WriteTo(w io.Writer) (int64, error) {
	if b.permit != (flowcontrol.Permit{}) {
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

// Close gives back the permit.
func (b *listBody) Close() error {
	b.permit.Release()
	return nil
}
