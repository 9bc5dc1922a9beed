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

// review is the part of an AdmissionReview that is read.
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

	unreadable error // why Object is incomplete; nil: it is complete
}

func nameOf(r *request) string {
	if r.Object.Name != "" {
		return r.Object.Name
	}
	return r.Object.GenerateName
}

func decode(text []byte) (*request, error) {
	if !utf8.Valid(text) { // a decoder makes three bytes of each invalid one
		return nil, errors.New("not an AdmissionReview: not valid UTF-8")
	}
	var r review
	err := kjson.UnmarshalCaseSensitivePreserveInts(text, &r)
	if malformed, _ := kjson.SyntaxErrorOffset(err); malformed {
		return nil, fmt.Errorf("not an AdmissionReview: %w", err)
	}
	if r.GroupVersionKind() != admissionv1.SchemeGroupVersion.WithKind("AdmissionReview") || r.Request == nil {
		return nil, errors.New("must be a request in an AdmissionReview of admission.k8s.io/v1")
	}
	if err != nil { // a field has the wrong type; all others are decoded
		r.Request.unreadable = inject.Unreadable(err)
	}
	return r.Request, nil
}

// respond makes the review that is the answer to a request.
func respond(uid types.UID, response *admissionv1.AdmissionResponse) *admissionv1.AdmissionReview {
	response.UID = uid
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	}
}
