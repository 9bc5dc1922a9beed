package fakeapiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
)

// maxBody is the largest body of a write, as upstream.
const maxBody = 3 << 20

// serveWrite answers a write. It has no admission, no defaulting and no dry run, and does not ask
// whether the namespace exists.
func (s *Server) serveWrite(w http.ResponseWriter, r *http.Request, at target, verb string) {
	if r.URL.Query().Get("dryRun") != "" {
		writeError(w, r, apierrors.NewBadRequest("this apiserver has no dry run"))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeError(w, r, apierrors.NewRequestEntityTooLargeError(err.Error()))
		return
	}
	code := http.StatusOK
	var answer []byte
	switch verb {
	case "create":
		code = http.StatusCreated
		answer, err = s.post(r, at, body)
	case "update":
		answer, err = s.put(r, at, body)
	case "patch":
		answer, err = s.patch(r, at, body)
	case "delete":
		answer, err = s.erase(at, body)
	case "deletecollection":
		answer, err = s.eraseAll(r, at)
	}
	if err != nil {
		writeError(w, r, err)
		return
	}
	s.respond(w, r, code, answer)
}

// decode reads an object of the resource from a JSON body and checks that it belongs where it was
// sent.
func (at target) decode(r *http.Request, body []byte) (map[string]any, error) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "" && media != "application/json" {
		return nil, unsupportedMedia("application/json")
	}
	var m map[string]any
	if err := utiljson.Unmarshal(body, &m); err != nil || m == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v",
			at.table.kind.Kind, err))
	}
	kind, apiVersion := at.table.kind.Kind, at.table.kind.GVR.GroupVersion().String()
	if k, _ := m["kind"].(string); k != "" && k != kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s", k, m["apiVersion"],
			kind))
	}
	if v, _ := m["apiVersion"].(string); v != "" && v != apiVersion {
		return nil, apierrors.NewBadRequest(
			fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", v, apiVersion))
	}
	return m, at.place(metadata(m))
}

// place completes name and namespace from the path, and refuses others.
func (at target) place(meta map[string]any) error {
	if at.table.kind.Namespaced {
		if ns, _ := meta["namespace"].(string); ns != "" && ns != at.namespace {
			return apierrors.NewBadRequest(
				"the namespace of the provided object does not match the namespace sent on the request")
		}
		meta["namespace"] = at.namespace
	}
	if name, _ := meta["name"].(string); at.name != "" && name != "" && name != at.name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)",
			name, at.name))
	}
	if at.name != "" {
		meta["name"] = at.name
	}
	return nil
}

func (s *Server) post(r *http.Request, at target, body []byte) ([]byte, error) {
	if at.table.kind.Namespaced && at.namespace == "" {
		return nil, methodNotAllowed()
	}
	m, err := at.decode(r, body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	meta := metadata(m)
	if rv, _ := meta["resourceVersion"].(string); rv != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if name, _ := meta["name"].(string); name == "" {
		prefix, _ := meta["generateName"].(string)
		if prefix == "" {
			return nil, apierrors.NewBadRequest("name or generateName is required")
		}
		meta["name"] = s.generatedLocked(prefix)
	}
	o, err := s.createLocked(at.table, m)
	return rawOf(o, err)
}

func (s *Server) put(r *http.Request, at target, body []byte) ([]byte, error) {
	m, err := at.decode(r, body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := at.existingLocked()
	if err != nil {
		return nil, err
	}
	return rawOf(s.replaceLocked(at.table, old, m))
}

// replaceLocked updates old if the identity that m claims is the one it has.
func (s *Server) replaceLocked(t *table, old *Obj, m map[string]any) (*Obj, error) {
	rv, _ := metadata(m)["resourceVersion"].(string)
	uid, _ := metadata(m)["uid"].(string)
	if err := checkIdentity(t, old, rv, types.UID(uid)); err != nil {
		return nil, err
	}
	return s.updateLocked(t, old, m)
}

func (s *Server) patch(r *http.Request, at target, body []byte) ([]byte, error) {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := at.existingLocked()
	if err != nil {
		return nil, err
	}
	patched, err := at.apply(types.PatchType(media), old.Raw, body)
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		return nil, err
	} else if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var m map[string]any
	if err := utiljson.Unmarshal(patched, &m); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return rawOf(s.replaceLocked(at.table, old, m))
}

// apply patches a JSON document.
func (at target) apply(kind types.PatchType, original, patch []byte) ([]byte, error) {
	switch {
	case kind == types.MergePatchType:
		return jsonpatch.MergePatch(original, patch)
	case kind == types.JSONPatchType:
		p, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		return p.Apply(original)
	case kind == types.StrategicMergePatchType && at.table.kind.typed:
		typed, err := scheme.Scheme.New(at.table.kind.gvk())
		if err != nil {
			return nil, err
		}
		return strategicpatch.StrategicMergePatch(original, patch, typed)
	}
	return nil, unsupportedMedia(
		"application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json")
}

func (s *Server) erase(at target, body []byte) ([]byte, error) {
	var o metav1.DeleteOptions
	if len(body) > 0 {
		if err := json.Unmarshal(body, &o); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := at.existingLocked()
	if err != nil {
		return nil, err
	}
	if p := o.Preconditions; p != nil {
		if err := checkIdentity(at.table, old, ptr.Deref(p.ResourceVersion, ""), ptr.Deref(p.UID, "")); err != nil {
			return nil, err
		}
	}
	marked := len(finalizers(old.tree())) > 0
	gone, err := s.deleteLocked(at.table, old)
	if err != nil || marked || at.table.kind.GVR == Pods {
		return rawOf(gone, err)
	}
	return json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: old.Name, Group: at.table.kind.GVR.Group, Kind: at.table.kind.GVR.Resource,
			UID: types.UID(old.UID)},
	})
}

func (s *Server) eraseAll(r *http.Request, at target) ([]byte, error) {
	q, err := parseQuery(r, at, !s.kubernetesNow().NoWatchList)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := q.cut(state{at.table.objects.Copy(), s.rev}, "")
	for _, o := range p.items {
		if _, err := s.deleteLocked(at.table, o); err != nil {
			return nil, err
		}
	}
	p.meta.ResourceVersion = formatRV(s.rev)
	return q.encode(p, form{}), nil
}

func (at target) existingLocked() (*Obj, error) {
	o, ok := at.table.objects.Get(at.table.kind.key(at.namespace, at.name))
	if !ok {
		return nil, apierrors.NewNotFound(at.table.kind.GVR.GroupResource(), at.name)
	}
	return o, nil
}

func rawOf(o *Obj, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return o.Raw, nil
}

func unsupportedMedia(types string) error {
	return failed(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+types, nil)
}
