// Package admission answers what the API server asks about pods that are created: with the patch that gives them a sidecar.
//
// The invariant: it keeps no pod from being created. What cannot have a sidecar is let through as it is, with a warning to whoever creates it.
package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"spillway/internal/inject"
)

// mostBytes is more than the API server takes of an object, twice since a review may hold it twice.
const mostBytes = 8 << 20

// Handler answers AdmissionReviews (admission.k8s.io/v1) of pods.
func Handler(o inject.Options, log *zap.Logger) http.Handler {
	o.Admitted = true
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review, err := read(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = answer(review.Request, o, log)
		review.Response.UID = review.Request.UID
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			log.Debug("nobody waits for an answer any more", zap.Error(err))
		}
	})
}

func read(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionReview, error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBytes))
	if err != nil {
		return nil, err
	}
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(text, review); err != nil {
		return nil, fmt.Errorf("not an AdmissionReview: %w", err)
	}
	if review.GroupVersionKind() != admissionv1.SchemeGroupVersion.WithKind("AdmissionReview") || review.Request == nil {
		return nil, errors.New("must be a request in an AdmissionReview of admission.k8s.io/v1")
	}
	return review, nil
}

// answer allows it, whatever it is.
func answer(r *admissionv1.AdmissionRequest, o inject.Options, log *zap.Logger) *admissionv1.AdmissionResponse {
	allowed := &admissionv1.AdmissionResponse{Allowed: true}
	if r.Operation != admissionv1.Create || r.Kind.Group != "" || r.Kind.Kind != "Pod" || r.SubResource != "" {
		return allowed
	}
	patch, name, err := patchOf(r, o)
	log = log.With(zap.String("namespace", r.Namespace), zap.String("pod", name))
	var left *inject.LeftError
	switch {
	case errors.As(err, &left):
		log.Debug("left as it is", zap.String("reason", left.Error()))
	case err != nil:
		log.Warn("cannot be injected", zap.Error(err))
		allowed.Warnings = []string{"spillway: not injected: " + err.Error()}
	default:
		log.Info("injected")
		jsonPatch := admissionv1.PatchTypeJSONPatch
		allowed.Patch, allowed.PatchType = patch, &jsonPatch
	}
	return allowed
}

// patchOf is what is to be done to the pod of a request, and what that is called.
func patchOf(r *admissionv1.AdmissionRequest, o inject.Options) (patch []byte, name string, err error) {
	var pod corev1.Pod
	if err := json.Unmarshal(r.Object.Raw, &pod); err != nil {
		return nil, r.Name, fmt.Errorf("the pod cannot be read: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if name = pod.Name; name == "" {
		name = pod.GenerateName
	}
	operations, err := inject.Plan(&corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}, o)
	if err != nil {
		return nil, name, err
	}
	patch, err = json.Marshal(operations)
	return patch, name, err
}
