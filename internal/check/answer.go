package check

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// answerTimeout bounds a request with its answer.
	answerTimeout = 10 * time.Second
	// answerLimitBytes is how much of an answer is read.
	answerLimitBytes = 16 << 20
	// messageLimitBytes is how much of a refusal is shown.
	messageLimitBytes = 300
)

// Endpoint is a server, and how requests reach it.
type Endpoint struct {
	Flag      string // that names Base, for remedies
	Base      *url.URL
	Transport http.RoundTripper // which must not follow redirects
	Token     string            // "": none
}

// answer is what an Endpoint answered.
type answer struct {
	code     int
	header   http.Header
	text     []byte
	hasToken bool // the request had one
}

// send sends a request. An answer of any code is no error.
func (e *Endpoint) send(ctx context.Context, method, path, body string) (*answer, error) {
	return e.sendAccepting(ctx, method, path, body, "application/json")
}

// sendAccepting is send, for an answer in one of the media types in accept.
func (e *Endpoint) sendAccepting(ctx context.Context, method, path, body, accept string) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	to := strings.TrimSuffix(e.Base.String(), "/") + path
	r, err := http.NewRequestWithContext(ctx, method, to, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("Content-Type", "application/json")
	if e.Token != "" {
		r.Header.Set("Authorization", "Bearer "+e.Token)
	}
	response, err := e.Transport.RoundTrip(r)
	if err != nil {
		return nil, e.newNoAnswerError(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerLimitBytes))
	return &answer{response.StatusCode, response.Header, text, e.Token != ""}, err
}

// get is do with a GET.
func (e *Endpoint) get(ctx context.Context, path string, into any) (http.Header, error) {
	return e.do(ctx, http.MethodGet, path, "", into)
}

// do sends a request, and decodes the answer into into. An answer that is no success is an error.
func (e *Endpoint) do(ctx context.Context, method, path, body string, into any) (http.Header, error) {
	a, err := e.send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	return a.header, a.decode(into)
}

// check returns an error unless the answer is a success.
func (a *answer) check() error {
	if a.code/100 == 2 {
		return nil
	}
	remedy := "its log says more"
	switch a.code {
	case http.StatusUnauthorized, http.StatusForbidden:
		remedy = a.credentialRemedy()
	case http.StatusNotFound:
		remedy = "see that the API server has this"
	case http.StatusTooManyRequests:
		remedy = "it is starting or has too much to do: try again"
	}
	return &refusalError{a.code, a.message(), remedy}
}

// credentialRemedy helps where the API server refuses the user.
func (a *answer) credentialRemedy() string {
	switch {
	case !a.hasToken:
		return "no token was sent: name a file with one in --token-file"
	case a.code == http.StatusUnauthorized:
		return "give in --token-file a valid token of this cluster, for the audience of its API server"
	}
	return "allow the user of the token to do this, or use another token"
}

// refusalError is an answer that is no success, with a remedy.
type refusalError struct {
	code            int
	message, remedy string
}

func (e *refusalError) Error() string { return fmt.Sprintf("%d %s: %s", e.code, e.message, e.remedy) }

// message is what a refusal says in one line: as a Status of the API server, or as text.
func (a *answer) message() string {
	var status struct{ Message string }
	if json.Unmarshal(a.text, &status) != nil || status.Message == "" {
		status.Message = strings.TrimSpace(string(a.text))
	}
	return strings.ReplaceAll(status.Message[:min(messageLimitBytes, len(status.Message))], "\n", " ")
}

// decode reads JSON.
func (a *answer) decode(into any) error {
	if err := json.Unmarshal(a.text, into); err != nil {
		return fmt.Errorf("the answer is not what a Kubernetes API gives (%w): is --server a spillway?", err)
	}
	return nil
}

// newNoAnswerError says why there was no answer.
func (e *Endpoint) newNoAnswerError(err error) error {
	var unverified *tls.CertificateVerificationError
	if errors.As(err, &unverified) {
		return fmt.Errorf("its certificate is not trusted: %w: give its authority in --ca-file, and in --server a name that "+
			"it is for", unverified.Err)
	}
	var lookup *net.DNSError
	if errors.As(err, &lookup) {
		return &lookupError{e, lookup}
	}
	return fmt.Errorf("no answer: %w: see that its pods are ready, and that no network policy blocks this one", err)
}

// lookupError says that the name of a server cannot be resolved, so that no request can be sent to
// it.
type lookupError struct {
	server *Endpoint
	cause  *net.DNSError
}

func (e *lookupError) Error() string {
	if e.cause.IsNotFound {
		return fmt.Sprintf("the name %s is not known (%v): see that %s names the Service and its namespace, and that "+
			"the cluster's DNS knows it", e.cause.Name, e.cause, e.server.Flag)
	}
	return fmt.Sprintf("names cannot be looked up (%v): see that the cluster's DNS works, and that no network policy "+
		"blocks this pod's requests to it", e.cause)
}

func (e *lookupError) Unwrap() error { return e.cause }
