package admission

import (
	"errors"
	"fmt"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"spillway/internal/sidecar/inject"
)

// review is the part of an AdmissionReview that is read. An admissionv1.AdmissionReview would also
// hold the old object, the options and the user, and the pod as text that is to be decoded again:
// more than weigh accounts for.
type review struct {
	metav1.TypeMeta `json:",inline"`
	Request         *request `json:"request"`
}

type request struct {
	UID         types.UID               `json:"uid"`
	Kind        metav1.GroupVersionKind `json:"kind"`
	SubResource string                  `json:"subResource"`
	Name        string                  `json:"name"`
	Namespace   string                  `json:"namespace"`
	Operation   admissionv1.Operation   `json:"operation"`
	Object      inject.Template         `json:"object"`

	bytes      int   // of the review's text
	unreadable error // the first field of a wrong type, in the pod or beside it; nil: there is none
}

// podName is the name of the pod, or its generateName.
func (r *request) podName() string {
	if r.Object.Name != "" {
		return r.Object.Name
	}
	return r.Object.GenerateName
}

// decode reads a review. A field of a wrong type is no error: see unreadable.
func decode(text []byte) (*request, error) {
	// The decoder replaces each invalid byte by three, so that the review would outgrow its weight.
	// Names in it would be other ones than the API server has.
	if !utf8.Valid(text) {
		return nil, errors.New("not an AdmissionReview: not valid UTF-8")
	}
	var r review
	err := kjson.UnmarshalCaseSensitivePreserveInts(text, &r)
	if malformed, _ := kjson.SyntaxErrorOffset(err); malformed {
		return nil, fmt.Errorf("not an AdmissionReview: %w", err)
	}
	if r.GroupVersionKind() != admissionv1.SchemeGroupVersion.WithKind("AdmissionReview") || r.Request == nil {
		return nil, errors.New("not an AdmissionReview of admission.k8s.io/v1 with a request")
	}
	r.Request.bytes = len(text)
	if err != nil { // a field has a wrong type; all others are decoded
		r.Request.unreadable = inject.Unreadable(err)
	}
	return r.Request, nil
}

// newReview makes the review that is the answer to the request of a uid. It sets response.UID.
func newReview(uid types.UID, response *admissionv1.AdmissionResponse) *admissionv1.AdmissionReview {
	response.UID = uid
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	}
}
