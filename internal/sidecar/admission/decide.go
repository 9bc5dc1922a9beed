package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"

	"spillway/internal/sidecar/inject"
)

// decide allows a pod, with the patch that it needs or with a warning that it gets no sidecar.
func (h *handler) decide(r *request) *admissionv1.AdmissionResponse {
	allowed := &admissionv1.AdmissionResponse{Allowed: true}
	if r.Operation != admissionv1.Create || r.Kind.Group != "" || r.Kind.Kind != "Pod" || r.SubResource != "" {
		return allowed
	}
	patch, notes, err := h.patchOf(r)
	log := h.log.With(zap.String("namespace", shorten(r.Namespace)), zap.String("pod", shorten(nameOf(r))))
	var skipped *inject.SkippedError
	switch {
	case errors.As(err, &skipped) && !skipped.IsNotable:
		log.Debug("left as it is", zap.String("reason", skipped.Error()))
	case err != nil:
		allowed.Warnings = []string{notInjected(err)}
		log.Warn("cannot be injected", zap.String("error", shorten(err.Error())))
	default:
		log.Info("injected", zap.Strings("notes", shortened(notes)))
		for _, n := range shortened(notes) {
			allowed.Warnings = append(allowed.Warnings, "spillway: "+n)
		}
		jsonPatch := admissionv1.PatchTypeJSONPatch
		allowed.Patch, allowed.PatchType = patch, &jsonPatch
	}
	return allowed
}

// patchOf is the JSON patch of the pod of a request, with notes about it.
func (h *handler) patchOf(r *request) ([]byte, []string, error) {
	if r.unreadable != nil {
		return nil, nil, fmt.Errorf("the pod cannot be read: %w", r.unreadable)
	}
	pod := inject.Pod{Template: &r.Object, IsAdmitted: true}
	if h.rules != nil {
		var err error
		if pod.Rules, err = h.rules(r.Namespace); err != nil {
			return nil, nil, fmt.Errorf("it is not known what the namespace allows its pods: %w", err)
		}
	}
	operations, notes, err := inject.Plan(pod, h.options)
	if err != nil {
		return nil, nil, err
	}
	patch, err := json.Marshal(operations)
	if err == nil && len(patch) > patchLimitBytes {
		return nil, nil, fmt.Errorf("would need a patch of %d bytes, of at most %d", len(patch), patchLimitBytes)
	}
	return patch, notes, err
}

func notInjected(err error) string { return "spillway: not injected: " + shorten(err.Error()) }

// textLimitBytes bounds a text about a review, because parts of it come from the review, and may be
// as long as that.
const textLimitBytes = 600

// noteLimit bounds the warnings about a pod that is injected.
const noteLimit = 4

// shorten makes a text fit into a header, in which the API server returns it: without control
// characters, and not too long.
func shorten(text string) string {
	if len(text) > textLimitBytes {
		text = text[:textLimitBytes]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

func shortened(notes []string) (all []string) {
	for _, n := range notes[:min(len(notes), noteLimit)] {
		all = append(all, shorten(n))
	}
	return all
}
