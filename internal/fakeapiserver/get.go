package fakeapiserver

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// serveGet answers a GET of one object (W-34, W-95).
func (s *Server) serveGet(w http.ResponseWriter, r *http.Request, at target) error {
	shown, err := negotiate(r, verbGet)
	if err != nil {
		return err
	}
	rv, err := parseRV(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		return err
	}
	st, err := s.notOlder(r.Context(), at.table, rv)
	if err != nil {
		return err
	}
	o, ok := st.objects.Get(at.table.kind.key(at.namespace, at.name))
	if !ok {
		return apierrors.NewNotFound(at.table.kind.GVR.GroupResource(), at.name)
	}
	s.respond(w, r, http.StatusOK, shown.object(o))
	return nil
}
