package serve

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/cache"
	"spillway/internal/object"
)

// list answers a LIST from a snapshot. It reports false, having written nothing, if upstream must answer.
func (s *Server) list(w responder, p Plan) bool {
	snapshot, err := s.snapshot(p)
	if err != nil {
		return p.Action != FromCacheProven && s.refused(w, p, err)
	}
	body := newListBody(p, snapshot)
	s.metrics.answered(p, "list")
	p.Source.warn(w.header)
	answerHeaders(w, "application/json")
	w.stream(http.StatusOK, body, int64(body.size))
	return true
}

// get answers a GET of one object. It reports false if upstream must answer.
func (s *Server) get(w responder, p Plan) bool {
	state, err := s.reach(p.Source, p.Get.RV, p.Get.Hurried)
	if err != nil {
		return s.refused(w, p, err)
	}
	o, ok := state.Get(p.Get.Key)
	if !ok {
		return s.refused(w, p, apierrors.NewNotFound(p.Source.Resource().Info.GVR.GroupResource(), p.Get.Name))
	}
	s.metrics.answered(p, "get")
	p.Source.warn(w.header)
	answerHeaders(w, "application/json")
	w.send(http.StatusOK, append(append(make([]byte, 0, o.Size()+1), o.JSON()...), '\n'))
	return true
}

// snapshot is the state that a LIST asks for.
func (s *Server) snapshot(p Plan) (*cache.Snapshot, error) {
	if p.Action == FromCacheProven {
		return s.recent(p)
	}
	l := p.List
	state, err := s.reach(p.Source, l.RV, l.Hurried)
	if err != nil || !l.Exact || state.RV == l.RV {
		return state, err
	}
	return p.Source.Resource().At(l.RV)
}

// listBody is a LIST, spliced from the objects' own bytes and never assembled. It pins the objects until it is written.
type listBody struct {
	head, tail string
	items      []*object.Object
	size       int
}

// newListBody collects a page: at most limit matching items, a continue token if keys remain in the scanned range after the
// last one, matching or not, and how many items remain if nothing is selected (W-69, W-70).
func newListBody(p Plan, snapshot *cache.Snapshot) *listBody {
	b := &listBody{}
	l, sel := p.List, p.Selector
	snapshot.Scan(sel, l.Start, func(o *object.Object) bool {
		b.items = append(b.items, o)
		return l.Limit == 0 || int64(len(b.items)) < l.Limit
	})
	token, remaining := "", -1
	if n := len(b.items); l.Limit > 0 && int64(n) == l.Limit {
		token, remaining = nextPage(p, snapshot, b.items[n-1].Key)
	}
	b.frame(p.Source.Resource().Info, snapshot.RV, token, remaining)
	for _, o := range b.items {
		b.size += o.ItemSize() + 1
	}
	b.size += len(b.head) + len(b.tail) - min(len(b.items), 1)
	return b
}

// nextPage is the token of the page after the key last, "" if nothing remains in scope, and the number of items that
// remain, -1 if it is not told.
func nextPage(p Plan, snapshot *cache.Snapshot, last string) (string, int) {
	sel := p.Selector
	remaining := 0
	snapshot.Scan(p.List.Scanned, last+"\x00", func(*object.Object) bool {
		remaining++
		return sel.ScopeOnly()
	})
	if remaining == 0 {
		return "", -1
	}
	if sel.Namespace != "" {
		last = strings.TrimPrefix(last, sel.Namespace+"/")
	}
	if !sel.ScopeOnly() {
		remaining = -1
	}
	return encodeContinue(snapshot.RV, last), remaining
}

// frame makes what stands around the items: in Go's field order for built-in kinds, sorted for custom resources (W-60).
func (b *listBody) frame(info *object.Resource, rv uint64, token string, remaining int) {
	rest := ""
	if remaining >= 0 {
		rest = `,"remainingItemCount":` + strconv.Itoa(remaining)
	}
	version := strconv.FormatUint(rv, 10)
	if !info.Builtin {
		b.head = `{"apiVersion":"` + info.APIVersion() + `","items":[`
		b.tail = `],"kind":"` + info.ListKind + `","metadata":{"continue":"` + token + `"` + rest + `,"resourceVersion":"` + version + "\"}}\n"
		return
	}
	if token != "" {
		rest = `,"continue":"` + token + `"` + rest
	}
	b.head = `{"kind":"` + info.ListKind + `","apiVersion":"` + info.APIVersion() + `","metadata":{"resourceVersion":"` + version + `"` + rest + `},"items":[`
	b.tail = "]}\n"
}

// pieceSize is how much of a list is written at once (design D10a).
const pieceSize = 256 << 10

// WriteTo writes the list in pieces of about pieceSize.
func (b *listBody) WriteTo(w io.Writer) (int64, error) {
	var written int64
	piece := make([]byte, 0, min(b.size, pieceSize+pieceSize/4))
	flush := func() error {
		n, err := w.Write(piece)
		written += int64(n)
		piece = piece[:0]
		return err
	}
	piece = append(piece, b.head...)
	for i, o := range b.items {
		if i > 0 {
			piece = append(piece, ',')
		}
		piece = o.AppendItem(piece)
		b.items[i] = nil
		if len(piece) >= pieceSize {
			if err := flush(); err != nil {
				return written, err
			}
		}
	}
	piece = append(piece, b.tail...)
	return written, flush()
}
