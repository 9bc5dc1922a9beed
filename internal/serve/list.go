package serve

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/cache"
	"spillway/internal/object"
)

// list answers a LIST from a snapshot. It reports false, having written nothing, if upstream must answer.
func (s *Server) list(ctx *fasthttp.RequestCtx, p Plan) bool {
	snapshot, err := s.snapshot(p)
	if err != nil {
		return s.refused(ctx, p, err)
	}
	body := newListBody(p, snapshot)
	s.respond(ctx, "application/json")
	ctx.Response.SetBodyStream(&pacedBody{listBody: body, conn: pacer(ctx.Conn()), stall: s.opts.StallTimeout}, body.size)
	s.metrics.answered(p, "list")
	return true
}

// get answers a GET of one object. It reports false if upstream must answer.
func (s *Server) get(ctx *fasthttp.RequestCtx, p Plan) bool {
	state, err := s.reach(p.Source, p.Get.RV, p.Get.Hurried)
	if err != nil {
		return s.refused(ctx, p, err)
	}
	o, ok := state.Get(p.Get.Key)
	if !ok {
		return s.refused(ctx, p, apierrors.NewNotFound(p.Source.Resource().Info.GVR.GroupResource(), p.Get.Name))
	}
	s.respond(ctx, "application/json")
	ctx.Response.SetBody(append(append(make([]byte, 0, o.Size()+1), o.JSON()...), '\n'))
	s.metrics.answered(p, "get")
	return true
}

// respond writes what every answer from the cache begins with (W-3), and lets the client take it at no less than a pace, until
// its next request.
func (s *Server) respond(ctx *fasthttp.RequestCtx, contentType string) {
	if p := pacer(ctx.Conn()); p != nil {
		_ = p.setPace(s.opts.StallTimeout, false) // fails on a closed connection, as the answer will
	}
	h := &ctx.Response.Header
	h.Set(auditID, answerAuditID(string(ctx.Request.Header.Peek(auditID))))
	h.Set("Cache-Control", "no-cache, private")
	h.SetContentType(contentType)
}

// snapshot is the state that a LIST asks for.
func (s *Server) snapshot(p Plan) (*cache.Snapshot, error) {
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
		b.tail = `],"kind":"` + info.Kind + `List","metadata":{"continue":"` + token + `"` + rest + `,"resourceVersion":"` + version + "\"}}\n"
		return
	}
	if token != "" {
		rest = `,"continue":"` + token + `"` + rest
	}
	b.head = `{"kind":"` + info.Kind + `List","apiVersion":"` + info.APIVersion() + `","metadata":{"resourceVersion":"` + version + `"` + rest + `},"items":[`
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

// pacedBody writes a list while its client keeps up: a list pins a state.
type pacedBody struct {
	*listBody
	conn  *conn
	stall time.Duration
}

// errReadOnly says that a list is written with WriteTo alone.
var errReadOnly = errors.New("a list is written, not read")

// Read is never called: SupportsBodyWriteTo says so.
func (b *pacedBody) Read([]byte) (int, error) { return 0, errReadOnly }

// SupportsBodyWriteTo implements fasthttp.BodyWriterTo.
func (b *pacedBody) SupportsBodyWriteTo() bool { return true }

// WriteTo writes the list under a pace.
func (b *pacedBody) WriteTo(w io.Writer) (int64, error) {
	if b.conn == nil {
		return b.listBody.WriteTo(w)
	}
	if err := b.conn.setPace(b.stall, true); err != nil {
		return 0, err
	}
	n, err := b.listBody.WriteTo(w)
	if err == nil { // what is left is in fasthttp's buffer, and no longer in the state
		err = b.conn.setPace(b.stall, false)
	}
	return n, err
}
