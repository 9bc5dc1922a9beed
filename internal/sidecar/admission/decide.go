package admission

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/ptr"

	"spillway/internal/sidecar/inject"
)

// annotatedLimitBytes bounds the reviews of pods that are annotated with the reason why they have
// no sidecar. A larger pod may be close to what etcd stores, and must not be refused for a reason.
const annotatedLimitBytes = 1 << 20

// decide allows every request. A pod that needs a sidecar gets the patch, with notes as warnings. A
// pod that unexpectedly gets none gets a warning, and the same reason in an annotation. What other
// pods have copied from one that does not tell the truth about them is removed.
func (h *handler) decide(r *request) *admissionv1.AdmissionResponse {
	allowed := &admissionv1.AdmissionResponse{Allowed: true}
	if r.Operation != admissionv1.Create || r.Kind.Group != "" || r.Kind.Kind != "Pod" || r.SubResource != "" {
		return allowed
	}
	patch, notes, err := h.patchOf(r)
	log := h.log.With(zap.String("namespace", sanitize(r.Namespace)), zap.String("pod", sanitize(r.podName())))
	var skipped *inject.SkippedError
	switch {
	case errors.As(err, &skipped) && !skipped.IsNotable:
		log.Debug("left as it is", zap.String("reason", skipped.Error()))
		return patched(allowed, inject.Mark(&r.Object, ""))
	case err != nil:
		allowed.Warnings = []string{notInjected(err)}
		log.Warn("cannot be injected", zap.String("error", sanitize(err.Error())))
		if r.unreadable == nil && r.bytes <= annotatedLimitBytes {
			return patched(allowed, inject.Mark(&r.Object, sanitize(err.Error())))
		}
	default:
		notes = sanitizeNotes(notes)
		log.Info("injected", zap.Strings("notes", notes))
		for _, n := range notes {
			allowed.Warnings = append(allowed.Warnings, "spillway: "+n)
		}
		allowed.Patch, allowed.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	return allowed
}

// patched is a response with a patch, if there is anything to patch.
func patched(response *admissionv1.AdmissionResponse, operations inject.Patch) *admissionv1.AdmissionResponse {
	if len(operations) == 0 {
		return response
	}
	if patch, err := json.Marshal(operations); err == nil { // of texts alone, which are always JSON
		response.Patch, response.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	return response
}

// patchOf is the JSON patch of the pod of a request, with notes for the pod's author.
func (h *handler) patchOf(r *request) ([]byte, []string, error) {
	if r.unreadable != nil {
		return nil, nil, fmt.Errorf("the pod cannot be read: %w", r.unreadable)
	}
	pod := inject.Pod{Template: &r.Object, IsAdmitted: true}
	if h.rules != nil {
		var err error
		if pod.Rules, err = h.rules(r.Namespace); err != nil {
			return nil, nil, fmt.Errorf("the limits of the namespace are not known: %w", err)
		}
	}
	operations, notes, err := inject.Plan(pod, h.options)
	if err != nil {
		return nil, nil, err
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, nil, err
	}
	if len(patch) > patchLimitBytes {
		return nil, nil, fmt.Errorf("would need a patch of %d bytes, of at most %d", len(patch), patchLimitBytes)
	}
	return patch, notes, nil
}
