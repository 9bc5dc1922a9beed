// Package admission answers the API server's reviews of pods that are created, with the patch that
// gives them a sidecar.
//
// Invariants: it allows every pod. A pod is admitted as it is if it cannot have a sidecar, if one
// may break a rule of its namespace, or if there is no room for its review; the client that creates
// it then gets a warning. And its memory is bounded, whatever arrives. Reviews are bounded by what
// they become when they are decoded (weigh, memoryBounds), and their number by that of the
// connections (Server).
package admission

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"

	"spillway/internal/listen"
	"spillway/internal/sidecar/inject"
	"spillway/internal/sidecar/limits"
)

// handler answers AdmissionReviews (admission.k8s.io/v1) of pods.
type handler struct {
	options inject.Options
	verify  VerifyFunc // nil: every client may send reviews
	rules   RulesFunc  // nil: namespaces allow everything
	memory  memoryBounds
	log     *zap.Logger
}

// RulesFunc returns the rules of a namespace. An error says why they are not known; pods of that
// namespace are left as they are.
type RulesFunc func(namespace string) (*limits.Rules, error)

// VerifyFunc returns why the certificates of a client at an address are not accepted. There is at
// least one.
type VerifyFunc func(ctx context.Context, from netip.Addr, peer []*x509.Certificate) error

// Handler answers AdmissionReviews of pods with sidecars as o describes them, in a size that the
// rules of their namespaces allow. verify and rules may be nil.
func Handler(o inject.Options, verify VerifyFunc, rules RulesFunc, log *zap.Logger) http.Handler {
	return &handler{o, verify, rules, newMemoryBounds(), log}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.authenticate(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	r.Header = http.Header{} // nothing of it is needed, and it may be large
	ctx, cancel := context.WithTimeout(r.Context(), waitTimeout(r))
	defer cancel()
	until, _ := ctx.Deadline()
	_ = http.NewResponseController(w).SetReadDeadline(until) // a test's recorder has none
	text, err := h.memory.receive(ctx, r)
	var answer []byte
	if err == nil {
		listen.RequestArrived(r.Context())
		answer, err = h.answer(ctx, text)
	}
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		h.refuse(w, r, text.bytes, refused)
	case err != nil:
		http.Error(w, sanitize(err.Error()), http.StatusBadRequest)
	default:
		h.write(w, answer)
	}
}

func (h *handler) authenticate(r *http.Request) error {
	switch {
	case h.verify == nil:
		return nil
	case r.TLS == nil || len(r.TLS.PeerCertificates) == 0:
		return errors.New("a client certificate is needed: give the API server one for this webhook " +
			"(--admission-control-config-file)")
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // of a unix socket it is none
	if err := h.verify(r.Context(), from.Addr(), r.TLS.PeerCertificates); err != nil {
		return fmt.Errorf("the client certificate is not accepted: %w", err)
	}
	return nil
}

// answer decodes a review and answers it, as soon as there is room for what it becomes. It gives
// back the room for its text.
func (h *handler) answer(ctx context.Context, text reviewText) ([]byte, error) {
	defer h.memory.release(text)
	weight, err := weigh(text.bytes)
	if err != nil {
		return nil, &refusal{http.StatusRequestEntityTooLarge, err.Error()}
	}
	if h.memory.work.Acquire(ctx, weight) != nil {
		return nil, errBusy
	}
	defer h.memory.work.Release(weight)
	request, err := decode(text.bytes)
	if err != nil {
		return nil, err
	}
	return json.Marshal(newReview(request.UID, h.decide(request)))
}

// refuse answers a review that is not decoded. If its head has the uid, the pod is admitted as it
// is, with a warning. Otherwise the request fails.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, head []byte, why *refusal) {
	discard(r)
	h.log.Warn("a review is not looked at", zap.String("reason", why.text), zap.Int64("bytes", r.ContentLength))
	uid := uidOf(head)
	if uid == "" {
		if why.code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, why.text, why.code)
		return
	}
	answer, err := json.Marshal(newReview(uid,
		&admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{notInjected(why)}}))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.write(w, answer)
}

func (h *handler) write(w http.ResponseWriter, answer []byte) {
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(answer); err != nil { // #nosec G705 -- JSON, and said to be
		h.log.Debug("an answer does not reach its client", zap.Error(err))
	}
}
