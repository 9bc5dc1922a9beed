package fakeapiserver

import (
	"io"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// bodyLimit is the most that a written object may have: kube-apiserver's limit of a request.
const bodyLimit = 3 << 20

// serveWrite answers a POST of an object or a DELETE of one (Options.Writes). Other writes are
// refused.
func (s *Server) serveWrite(w http.ResponseWriter, r *http.Request, at target) error {
	switch {
	case r.Method == http.MethodPost && at.name == "" && (at.namespace != "") == at.table.kind.Namespaced:
		return s.serveCreate(w, r, at)
	case r.Method == http.MethodDelete && at.name != "" && at.subresource == "":
		return s.serveDelete(w, r, at)
	}
	return methodNotAllowed()
}

func (s *Server) serveCreate(w http.ResponseWriter, r *http.Request, at target) error {
	kind := at.table.kind
	m, err := objectIn(w, r)
	if err != nil {
		return err
	}
	meta := metadata(m)
	name, _ := meta["name"].(string)
	if name == "" {
		return failed(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, kind.Kind+
			` "" is invalid: metadata.name: Required value: name or generateName is required`, nil)
	}
	if namespace, ok := meta["namespace"]; ok && namespace != at.namespace {
		return apierrors.NewBadRequest(
			"the namespace of the provided object does not match the namespace sent on the request")
	}
	if _, err := kind.object(m, 1); err != nil { // Create takes what a test wrote, and so panics
		return apierrors.NewBadRequest(err.Error())
	}
	rv := s.Create(kind.GVR, at.namespace, name, func(fresh map[string]any) {
		for key, value := range m {
			fresh[key] = value
		}
	})
	if rv == 0 {
		return apierrors.NewAlreadyExists(kind.GVR.GroupResource(), name)
	}
	return s.respondStored(w, r, http.StatusCreated, at, name)
}

// respondStored answers with an object as it is in storage now.
func (s *Server) respondStored(w http.ResponseWriter, r *http.Request, code int, at target, name string) error {
	o, ok := s.Get(at.table.kind.GVR, at.namespace, name)
	if !ok { // deleted since
		return apierrors.NewNotFound(at.table.kind.GVR.GroupResource(), name)
	}
	s.respond(w, r, code, o.Raw)
	return nil
}

func (s *Server) serveDelete(w http.ResponseWriter, r *http.Request, at target) error {
	kind := at.table.kind
	if s.Delete(kind.GVR, at.namespace, at.name) == 0 {
		return apierrors.NewNotFound(kind.GVR.GroupResource(), at.name)
	}
	s.respond(w, r, http.StatusOK, mustJSON(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Group: kind.GVR.Group, Name: at.name, Kind: kind.GVR.Resource},
	}))
	return nil
}

// objectIn decodes the object in the body of a request.
func objectIn(w http.ResponseWriter, r *http.Request) (map[string]any, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, failed(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"the body of the request was in an unknown format - accepted media types include: application/json", nil)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var m map[string]any
	if err := utiljson.Unmarshal(body, &m); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if m == nil {
		return nil, apierrors.NewBadRequest("the body of the request holds no object")
	}
	return m, nil
}
