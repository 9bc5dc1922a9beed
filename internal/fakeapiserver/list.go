package fakeapiserver

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// page is the part of a state that one LIST returns.
type page struct {
	items []*Obj
	meta  metav1.ListMeta
}

// serveList answers a LIST (§4).
func (s *Server) serveList(w http.ResponseWriter, r *http.Request, q *query) {
	shown, err := negotiate(r, true, false)
	if err != nil {
		writeError(w, r, err)
		return
	}
	st, from, err := s.resolve(r.Context(), q)
	if err != nil {
		writeError(w, r, err)
		return
	}
	s.respond(w, r, http.StatusOK, q.encode(q.cut(st, from), shown))
}

// resolve finds the state that the options ask for and the relative key to begin at: the decision
// table of W-63.
func (s *Server) resolve(ctx context.Context, q *query) (st state, from string, err error) {
	o, t := &q.options, q.table
	if o.Continue != "" {
		return s.resolveContinue(ctx, q)
	}
	rv, err := parseRV(o.ResourceVersion)
	if err != nil {
		return st, "", apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	exact := o.ResourceVersionMatch == metav1.ResourceVersionMatchExact || o.ResourceVersionMatch == "" && o.Limit > 0 &&
		rv > 0
	switch {
	case o.ResourceVersion == "":
		return s.consistent(ctx, t), "", nil
	case exact:
		st, known, err := s.exact(ctx, t, rv)
		if err == nil && !known {
			err = expiredList()
		}
		return st, "", err
	}
	if o.ResourceVersion == "0" && !t.kind.Uncached {
		o.Limit = 0
	}
	st, err = s.notOlder(ctx, t, rv)
	return st, "", err
}

// exact waits for revision rv if it is to come, and returns the state there.
func (s *Server) exact(ctx context.Context, t *table, rv uint64) (st state, known bool, err error) {
	s.mu.Lock()
	if rv <= s.rev {
		st, known = s.exactLocked(t, rv)
		s.mu.Unlock()
		return st, known, nil
	}
	s.mu.Unlock()
	if err := s.reached(ctx, t, rv, func() { st, known = s.exactLocked(t, rv) }); err != nil {
		return st, false, err
	}
	return st, known, nil
}

func (s *Server) resolveContinue(ctx context.Context, q *query) (state, string, error) {
	tok, err := parseToken(q.options.Continue)
	if err != nil {
		return state{}, "", apierrors.NewBadRequest("invalid continue token: " + err.Error())
	}
	if rv := q.options.ResourceVersion; rv != "" && rv != "0" {
		return state{}, "", apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	if tok.RV < 0 {
		return s.consistent(ctx, q.table), tok.Start, nil
	}
	st, known, err := s.exact(ctx, q.table, uint64(tok.RV))
	if err == nil && !known {
		tok.RV = -1
		err = expiredContinue(tok.String())
	}
	return st, tok.Start, err
}

// cut selects the items of one page: from a relative key on, at most limit of them (W-69, W-70).
func (q *query) cut(st state, from string) page {
	p := page{items: []*Obj{}, meta: metav1.ListMeta{ResourceVersion: formatRV(st.rv)}}
	prefix := ""
	if q.selector.namespace != "" {
		prefix = q.selector.namespace + "/"
	}
	only, named := q.exactName()
	named = named && (prefix != "" || !q.table.kind.Namespaced)
	last, more := "", int64(0)
	st.objects.Ascend(prefix+from, func(key string, o *Obj) bool {
		switch {
		case !strings.HasPrefix(key, prefix):
			return false
		case named && key != prefix+only:
			return true
		case q.options.Limit > 0 && int64(len(p.items)) >= q.options.Limit:
			more++
		case q.selector.matches(o):
			p.items, last = append(p.items, o), key
		}
		return true
	})
	if more > 0 {
		p.meta.Continue = next(int64(st.rv), strings.TrimPrefix(last, prefix),
			q.table.kind.Uncached) // #nosec G115 -- resourceVersions of a test are small
		if q.selector.everything() {
			p.meta.RemainingItemCount = &more
		}
	}
	return p
}

// encode prints a list: built-in kinds in the order of their Go type, custom ones with sorted keys
// (W-60).
func (q *query) encode(p page, shown form) []byte {
	r := q.table.kind
	kind, apiVersion := r.Kind+"List", r.GVR.GroupVersion().String()
	if shown.partial != "" {
		kind, apiVersion = "PartialObjectMetadataList", shown.partial
	}
	items := q.items(p.items, shown)
	if !r.Custom || shown.partial != "" {
		return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":%s}`, kind, apiVersion,
			mustJSON(p.meta), items)
	}
	sorted := map[string]any{"continue": p.meta.Continue, "resourceVersion": p.meta.ResourceVersion}
	if p.meta.RemainingItemCount != nil {
		sorted["remainingItemCount"] = *p.meta.RemainingItemCount
	}
	return fmt.Appendf(nil, `{"apiVersion":%q,"items":%s,"kind":%q,"metadata":%s}`, apiVersion, items, kind,
		mustJSON(sorted))
}

func (q *query) items(list []*Obj, shown form) []byte {
	if len(list) == 0 && shown.partial != "" {
		return []byte("null") // W-45
	}
	var b bytes.Buffer
	b.WriteByte('[')
	for i, o := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		if shown.partial != "" {
			b.Write(shown.object(o))
		} else {
			b.Write(o.item)
		}
	}
	b.WriteByte(']')
	return b.Bytes()
}
