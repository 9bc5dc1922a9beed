package upstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"spillway/internal/object"
	"spillway/internal/upstream/wire"
)

const (
	// headTimeout is how long upstream may take until its answer begins: a consistent LIST may take
	// its request timeout of 60 s (W-28), a watch sends its head at once (W-102). client-go has no
	// such limit.
	headTimeout = 75 * time.Second
	// maxErrorBytes bounds how much is read of an error's body.
	maxErrorBytes = 64 << 10
)

// GetRequest is one GET. Those for a resource are made by GetRequestFor.
type GetRequest struct {
	Verb     string // for the wording of errors
	Resource schema.GroupResource
	Path     string
	Options  metav1.ListOptions // the query
	// OnlyMetadata requests PartialObjectMetadata in place of objects.
	OnlyMetadata bool
	// Purpose is added to the client's User-Agent.
	Purpose string
	// Via is what the request travels on; nil: the client's connections.
	Via http.RoundTripper
	// HeadTimeout is how long the answer may take to begin; 0: headTimeout.
	HeadTimeout time.Duration
	// OnHead is called with the head of a 200, before its body is read; it may be nil.
	OnHead func(http.Header)
}

// GetRequestFor makes the request for all objects of a resource; the verb is list or watch.
func GetRequestFor(verb string, r *object.Resource, o metav1.ListOptions) GetRequest {
	o.Watch = verb == "watch"
	return GetRequest{Verb: verb, Resource: r.GVR.GroupResource(), Path: r.Path(), Options: o}
}

// Get sends a request and returns the body of a 200, decompressed. Any other answer is an error,
// one with a status from 400 on an *apierrors.StatusError.
func (c *Client) Get(ctx context.Context, r GetRequest) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	resp, err := c.awaitHead(ctx, cancel, r) //nolint:bodyclose // answerBody does
	c.contact.recordResult(resp, err)
	if err != nil {
		cancel(nil)
		return nil, &url.Error{Op: "Get", URL: c.base.String() + r.Path, Err: err}
	}
	body := &answerBody{ReadCloser: resp.Body, cancel: cancel}
	if resp.Header.Get("Content-Encoding") == "gzip" {
		body.ReadCloser = wire.NewMembers(resp.Body)
	}
	if err := checkAnswer(resp, r, body); err != nil {
		_ = body.Close()
		return nil, err
	}
	if r.OnHead != nil {
		r.OnHead(resp.Header)
	}
	c.recoveryProbe.wakeWaiters()
	return body, nil
}

// awaitHead sends a request and waits until its answer begins; cancel ends it if that takes too
// long.
func (c *Client) awaitHead(ctx context.Context, cancel context.CancelCauseFunc, r GetRequest) (*http.Response, error) {
	noHead := errNoHead{cmp.Or(r.HeadTimeout, headTimeout)}
	late := time.AfterFunc(noHead.after, func() { cancel(noHead) })
	resp, err := cmp.Or(r.Via, c.http.Transport).RoundTrip(c.newRequest(ctx, r))
	isLate := !late.Stop()
	switch {
	case err == nil && isLate:
		_ = resp.Body.Close()
		return nil, noHead
	case err != nil && context.Cause(ctx) == noHead:
		return nil, noHead
	}
	return resp, err
}

// errNoHead says that an answer did not begin in time.
type errNoHead struct{ after time.Duration }

func (e errNoHead) Error() string { return fmt.Sprintf("no answer within %s", e.after) }

// answerBody frees what its request holds when it is closed.
type answerBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *answerBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

func (c *Client) newRequest(ctx context.Context, r GetRequest) *http.Request {
	// The error is for types without a codec.
	query, _ := scheme.ParameterCodec.EncodeParameters(&r.Options, schema.GroupVersion{Version: "v1"})
	u := *c.base
	u.Path += r.Path
	u.RawQuery = query.Encode()
	h := http.Header{"Accept": {runtime.ContentTypeJSON}, "User-Agent": {c.cfg.UserAgent}, "Accept-Encoding": {"gzip"}}
	if r.OnlyMetadata {
		kind := "PartialObjectMetadata"
		if r.Verb == "list" {
			kind += "List"
		}
		h.Set("Accept", runtime.ContentTypeJSON+";as="+kind+";g=meta.k8s.io;v=v1,"+runtime.ContentTypeJSON)
	}
	if r.Purpose != "" {
		h.Set("User-Agent", c.cfg.UserAgent+" "+r.Purpose)
	}
	if c.cfg.DisableCompression {
		h.Set("Accept-Encoding", "identity")
	}
	req := &http.Request{Method: http.MethodGet, URL: &u, Host: u.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1}
	return req.WithContext(ctx)
}

// checkAnswer makes an error of every answer but JSON with a 200.
func checkAnswer(resp *http.Response, r GetRequest, body io.Reader) error {
	if resp.StatusCode == http.StatusOK {
		media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		if err != nil || media != runtime.ContentTypeJSON {
			return fmt.Errorf("%s %s: %q instead of JSON; is this a kube-apiserver?", r.Verb, r.Path,
				resp.Header.Get("Content-Type"))
		}
		return nil
	}
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		return redirectError(to.Host)
	}
	text, _ := io.ReadAll(io.LimitReader(body, maxErrorBytes)) // as much as arrived
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err == nil && status.Kind == "Status" &&
		status.Status != metav1.StatusSuccess {
		if status.Code == 0 {
			status.Code = int32(resp.StatusCode) // #nosec G115 -- a status code
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	after, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // 0 if it is missing
	return apierrors.NewGenericServerResponse(resp.StatusCode, r.Verb, r.Resource, "", string(bytes.TrimSpace(text)),
		after, true)
}

// GetJSON reads a whole answer.
func (c *Client) GetJSON(ctx context.Context, r GetRequest, into any) error {
	body, err := c.Get(ctx, r)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("%s %s: %w", r.Verb, r.Path, err)
	}
	_, _ = io.Copy(io.Discard, body) // to its end, so that the connection is used again
	return nil
}
