package admission

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"

	"spillway/internal/sidecar/inject"
)

// decide allows every request. A pod that needs a sidecar gets the patch, with notes as warnings. A
// pod that unexpectedly gets none gets a warning, others nothing.
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
	case err != nil:
		allowed.Warnings = []string{notInjected(err)}
		log.Warn("cannot be injected", zap.String("error", sanitize(err.Error())))
	default:
		notes = sanitizeNotes(notes)
		log.Info("injected", zap.Strings("notes", notes))
		for _, n := range notes {
			allowed.Warnings = append(allowed.Warnings, "spillway: "+n)
		}
		jsonPatch := admissionv1.PatchTypeJSONPatch
		allowed.Patch, allowed.PatchType = patch, &jsonPatch
	}
	return allowed
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
