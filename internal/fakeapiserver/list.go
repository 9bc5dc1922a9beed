package fakeapiserver

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
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
func (s *Server) serveList(w http.ResponseWriter, r *http.Request, at target) error {
	q, err := s.parseQuery(r, at, verbList)
	if err != nil {
		return err
	}
	st, start, err := s.resolve(r.Context(), q)
	if err != nil {
		return err
	}
	s.respond(w, r, http.StatusOK, q.encode(q.cut(st, start)))
	return nil
}

// resolve finds the state that the options ask for and the key to begin at, relative to the
// namespace: the decision table of W-63. It sets the limit to 0 where kube-apiserver ignores it.
func (s *Server) resolve(ctx context.Context, q *query) (st state, start string, err error) {
	o := &q.options
	if o.Continue != "" {
		return s.resolveContinue(ctx, q)
	}
	rv, err := parseRV(o.ResourceVersion)
	if err != nil {
		return st, "", apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	switch {
	case o.ResourceVersion == "":
		return s.consistent(q.table), "", nil
	case o.ResourceVersionMatch == metav1.ResourceVersionMatchExact, o.ResourceVersionMatch == "" && o.Limit > 0 && rv > 0:
		st, err = s.exact(ctx, q.table, rv, expiredList())
		return st, "", err
	case o.ResourceVersion == "0":
		o.Limit = 0 // the watch cache has no pages
	}
	st, err = s.notOlder(ctx, q.table, rv)
	return st, "", err
}

func (s *Server) resolveContinue(ctx context.Context, q *query) (st state, start string, err error) {
	tok, err := parseToken(q.options.Continue)
	if err != nil {
		return st, "", apierrors.NewBadRequest("invalid continue token: " + err.Error())
	}
	if rv := q.options.ResourceVersion; rv != "" && rv != "0" {
		return st, "", apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	if tok.RV < 0 {
		return s.consistent(q.table), tok.Start, nil
	}
	goOn := tok
	goOn.RV = inconsistentRV
	st, err = s.exact(ctx, q.table, uint64(tok.RV), expiredContinue(goOn))
	return st, tok.Start, err
}

// cut selects the items of one page: from key start on, at most limit of them (W-69, W-70).
func (q *query) cut(st state, start string) page {
	p := page{items: []*Obj{}, meta: metav1.ListMeta{ResourceVersion: formatRV(st.rv)}}
	prefix := ""
	if q.selector.namespace != "" {
		prefix = q.selector.namespace + "/"
	}
	name, isOne := q.selector.fields.RequiresExactMatch("metadata.name")
	isOne = isOne && (prefix != "" || !q.table.kind.Namespaced) // only one key is looked at then
	last, rest := "", int64(0)
	st.objects.Ascend(prefix+start, func(key string, o *Obj) bool {
		switch {
		case !strings.HasPrefix(key, prefix):
			return false
		case isOne && key != prefix+name:
		case q.options.Limit > 0 && int64(len(p.items)) >= q.options.Limit:
			rest++ // only told to clients that select everything, so it may count what does not match
		case q.selector.matches(o):
			p.items, last = append(p.items, o), key
		}
		return true
	})
	if rest > 0 {
		p.meta.Continue = newToken(st.rv, strings.TrimPrefix(last, prefix)).String()
		if q.selector.isEverything() {
			p.meta.RemainingItemCount = &rest
		}
	}
	return p
}

// encode prints a list: built-in kinds in the order of their Go type, custom ones with sorted keys
// (W-60).
func (q *query) encode(p page) []byte {
	r, items := q.table.kind, q.encodeItems(p.items)
	kind, apiVersion := r.Kind+"List", r.GVR.GroupVersion().String()
	if q.shown.isPartial() {
		kind, apiVersion = "PartialObjectMetadataList", q.shown.apiVersion
	}
	if !r.Custom || q.shown.isPartial() {
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

func (q *query) encodeItems(list []*Obj) []byte {
	if len(list) == 0 && q.shown.isPartial() {
		return []byte("null") // W-45
	}
	encoded := make([][]byte, len(list))
	for i, o := range list {
		if encoded[i] = o.item; q.shown.isPartial() {
			encoded[i] = q.shown.object(o)
		}
	}
	return slices.Concat([]byte("["), bytes.Join(encoded, []byte(",")), []byte("]"))
}
