// Package admission answers what the API server asks about pods that are created: with the patch
// that gives them a sidecar.
//
// Two invariants. It allows every pod: what cannot have a sidecar, what may break a rule of its
// namespace with one, and what there is no room to look at, is admitted as it is, with a warning
// for the client that creates it. And what it holds is bounded whatever arrives:
// reviews by what they become, not by how they arrive (weigh, memoryBounds), their number by that
// of the connections (Server).
package admission

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"spillway/internal/listen"
	"spillway/internal/sidecar/inject"
	"spillway/internal/sidecar/limits"
)

// handler answers AdmissionReviews (admission.k8s.io/v1) of pods.
type handler struct {
	options inject.Options
	verify  VerifyFunc // of a client; nil: any may ask
	rules   RulesFunc
	memory  memoryBounds
	log     *zap.Logger
}

// RulesFunc returns the rules of a namespace. An error says why they are not known; pods of that
// namespace are left as they are.
type RulesFunc func(namespace string) (*limits.Rules, error)

// VerifyFunc returns why the certificates of a client at an address, of which there is one, are not
// accepted.
type VerifyFunc func(ctx context.Context, from netip.Addr, peer []*x509.Certificate) error

// Handler answers AdmissionReviews of pods with sidecars like o, of a size that the rules of their
// namespaces allow; nil: that the pod allows. Clients have to show a certificate that verify takes;
// if it is nil, any client may ask.
func Handler(o inject.Options, verify VerifyFunc, rules RulesFunc, log *zap.Logger) http.Handler {
	o.Admitted = true
	return &handler{o, verify, rules, newMemoryBounds(), log}
}

// review is what is read of an AdmissionReview.
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

	unreadable error // why Object is not all that there is
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
	from, err := h.memory.receive(ctx, r)
	var answer []byte
	if err == nil {
		listen.RequestArrived(r.Context())
		answer, err = h.answer(ctx, from)
	}
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		h.refuse(w, r, from.text, refused)
	case err != nil:
		http.Error(w, shorten(err.Error()), http.StatusBadRequest)
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

// answer reads a review and answers it, as soon as there is room for what it becomes. It gives back
// the room for its text.
func (h *handler) answer(ctx context.Context, from received) ([]byte, error) {
	defer h.memory.release(from)
	weight, err := weigh(from.text)
	if err != nil {
		return nil, &refusal{http.StatusRequestEntityTooLarge, err.Error()}
	}
	if h.memory.work.Acquire(ctx, weight) != nil {
		return nil, errBusy
	}
	defer h.memory.work.Release(weight)
	request, err := decode(from.text)
	if err != nil {
		return nil, err
	}
	return json.Marshal(respond(request.UID, h.decide(request)))
}

func decode(text []byte) (*request, error) {
	if !utf8.Valid(text) { // a decoder makes three bytes of each that is not
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
	if err != nil { // everything else is read all the same
		r.Request.unreadable = inject.Unreadable(err)
	}
	return r.Request, nil
}

// respond is the review that is an answer.
func respond(uid types.UID, response *admissionv1.AdmissionResponse) *admissionv1.AdmissionReview {
	response.UID = uid
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	}
}

// decide allows it, whatever it is.
func (h *handler) decide(r *request) *admissionv1.AdmissionResponse {
	allowed := &admissionv1.AdmissionResponse{Allowed: true}
	if r.Operation != admissionv1.Create || r.Kind.Group != "" || r.Kind.Kind != "Pod" || r.SubResource != "" {
		return allowed
	}
	patch, notes, err := h.patchOf(r)
	log := h.log.With(zap.String("namespace", shorten(r.Namespace)), zap.String("pod", shorten(nameOf(r))))
	var left *inject.SkippedError
	switch {
	case errors.As(err, &left) && !left.IsNotable:
		log.Debug("left as it is", zap.String("reason", left.Error()))
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

// patchOf is what is to be done to the pod of a request.
func (h *handler) patchOf(r *request) ([]byte, []string, error) {
	if r.unreadable != nil {
		return nil, nil, fmt.Errorf("the pod cannot be read: %w", r.unreadable)
	}
	o := h.options
	if h.rules != nil {
		var err error
		if o.Rules, err = h.rules(r.Namespace); err != nil {
			return nil, nil, fmt.Errorf("it is not known what the namespace allows its pods: %w", err)
		}
	}
	operations, notes, err := inject.Plan(&r.Object, o)
	if err != nil {
		return nil, nil, err
	}
	patch, err := json.Marshal(operations)
	if err == nil && len(patch) > patchLimitBytes {
		return nil, nil, fmt.Errorf("would need a patch of %d bytes, of at most %d", len(patch), patchLimitBytes)
	}
	return patch, notes, err
}

func shortened(notes []string) (all []string) {
	for _, n := range notes[:min(len(notes), noteLimit)] {
		all = append(all, shorten(n))
	}
	return all
}

func nameOf(r *request) string {
	if r.Object.Name != "" {
		return r.Object.Name
	}
	return r.Object.GenerateName
}

// refuse answers a review that is not looked at. The pod is admitted as it is, with a warning, if
// it is known which review that is.
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
	answer, err := json.Marshal(respond(uid,
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

func notInjected(err error) string { return "spillway: not injected: " + shorten(err.Error()) }

// textLimitBytes bounds what is said of a review: parts of it are a stranger's, and may be as long
// as the review.
const textLimitBytes = 600

// noteLimit bounds the warnings about a pod that is injected.
const noteLimit = 4

// shorten is a text that fits into a header, of which the API server makes one: without control
// characters, and not long.
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
