// Package check tests an installation as a client: whether Spillway is reached, trusted and passed
// through, knows the client's user, and serves from memory. It sends requests that any client may
// send, and gets nothing that another client would not get.
//
// The invariant: each question is answered with one line, also after another has failed, and what
// failed comes with a remedy. But where the name is not found, there is one answer to all.
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
	"regexp"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/status"
)

// Checker sends the questions.
type Checker struct {
	Base      *url.URL
	Token     string            // "": none
	Transport http.RoundTripper // which must not follow redirects
	// Health is where the metrics listener is, and HealthTransport leads there. nil: it is not asked.
	Health          *url.URL
	HealthTransport http.RoundTripper

	// Patience is for how long connections may be refused at first. A Service refuses them until each
	// node knows of its pods, which is a moment after they are ready. 0: the first one counts.
	Patience time.Duration

	marks     bool // the API server marks what it answers itself
	explained bool // the metrics listener named what is wrong
}

const (
	// answerMost is how long an answer may take to come, and bodyMost how large it may be.
	answerMost = 10 * time.Second
	bodyMost   = 16 << 20
)

// question is one request, and what to print of a good answer.
type question struct {
	name string
	ask  func(context.Context) (told string, err error)
}

// Run sends all questions: health and readiness; with a token or a resource, the version of the API
// server; with a token, its user; with Health, what the proxy says of itself; a list of each
// resource from memory. It writes a line for each to out. The error names the first that failed.
func (c *Checker) Run(ctx context.Context, resources []string, out io.Writer) error {
	questions := []question{{"/livez", c.reach}, {"/readyz", c.probe("/readyz")}}
	if c.Token != "" || len(resources) > 0 {
		questions = append(questions, question{"/version", c.version})
	}
	if c.Token != "" {
		questions = append(questions, question{"user", c.whoami})
	}
	if c.Health != nil { // after what may cause a review
		questions = append(questions, question{"/readyz?verbose", c.health})
	}
	for _, resource := range resources {
		questions = append(questions, question{"LIST " + resource, func(ctx context.Context) (string, error) {
			return c.list(ctx, resource)
		}})
	}
	failed, first := 0, error(nil)
	var unnamed *unnamedError
	for _, q := range questions {
		told, err := q.ask(ctx)
		if err == nil {
			fmt.Fprintf(out, "ok      %s: %s\n", q.name, status.Printable(told))
			continue
		}
		cause := err
		err = fmt.Errorf("%s: %s", q.name, status.Printable(err.Error()))
		fmt.Fprintf(out, "FAILED  %v\n", err)
		if failed++; first == nil {
			first = err
		}
		if errors.As(cause, &unnamed) {
			fmt.Fprintln(out, "        so no other question is sent")
			break
		}
	}
	if failed > 0 {
		return fmt.Errorf("%s: %d of %d checks failed, first %w", c.Base, failed, len(questions), first)
	}
	return nil
}

func (c *Checker) probe(path string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		_, err := c.do(ctx, http.MethodGet, path, "", nil)
		return "200", err
	}
}

// refusedPause is the time between two connections while they are refused.
const refusedPause = 200 * time.Millisecond

// reach probes /livez, again while connections are refused.
func (c *Checker) reach(ctx context.Context) (string, error) {
	probe := c.probe("/livez")
	for began := time.Now(); ; {
		told, err := probe(ctx)
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(began) >= c.Patience {
			return told, err
		}
		select {
		case <-time.After(refusedPause):
		case <-ctx.Done():
			return told, err
		}
	}
}

func (c *Checker) version(ctx context.Context) (string, error) {
	var v struct{ GitVersion string }
	header, err := c.do(ctx, http.MethodGet, "/version", "", &v)
	if err != nil {
		return "", err
	}
	c.marks = header.Get(flowControl) != ""
	if v.GitVersion == "" {
		return "", errors.New("the answer names no version: is --server a spillway?")
	}
	return v.GitVersion, nil
}

func (c *Checker) whoami(ctx context.Context) (string, error) {
	const review = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	var r struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	if _, err := c.do(ctx, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, &r); err != nil {
		return "", err
	}
	if r.Status.UserInfo.Username == "" {
		return "", errors.New("the answer names no user: is --server a spillway?")
	}
	return r.Status.UserInfo.Username, nil
}

// health reads what the proxy says of itself. What is wrong there and not merely on its way is an
// error: checks that failed, mirrors that are refused, reviews that are not answered.
func (c *Checker) health(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerMost)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.Health.String(), "/")+"/readyz?verbose",
		http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := c.HealthTransport.RoundTrip(r)
	if err != nil {
		return "", unreached(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, bodyMost))
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(text), "[+]") {
		return "", fmt.Errorf("%d, and no list of checks: is --health the metrics listener of a spillway?",
			response.StatusCode)
	}
	if wrong := wrongLine.FindAllString(string(text), -1); len(wrong) > 0 {
		c.explained = true
		return "", errors.New(strings.Join(wrong, "; "))
	}
	return "nothing is wrong", nil
}

// wrongLine is a line of /readyz?verbose about a fault that does not end by itself.
var wrongLine = regexp.MustCompile(`(?m)^\[-\].*|^\[!\](reviews |mirror [^ ]+ refused ).*`)

// selected is what a list is restricted to: most likely nothing, so that it costs as little in a
// large cluster as in a small one.
const selected = "?resourceVersion=0&fieldSelector=metadata.name%3Dspillway-check"

// flowControl is on what the API server itself answered, if it has priority and fairness, and on
// nothing that was made from memory.
const flowControl = "X-Kubernetes-Pf-Flowschema-Uid"

// list asks for a state of any age, which takes no more than memory.
func (c *Checker) list(ctx context.Context, resource string) (string, error) {
	path, err := c.pathOf(ctx, resource)
	if err != nil {
		return "", err
	}
	var l struct {
		Metadata struct{ ResourceVersion string }
	}
	header, err := c.do(ctx, http.MethodGet, path+selected, "", &l)
	switch {
	case err != nil:
		return "", err
	case l.Metadata.ResourceVersion == "":
		return "", errors.New("the answer is no list: is --server a spillway?")
	case header.Get(flowControl) != "" && c.explained:
		return "", errors.New("not from memory but from the API server: /readyz?verbose, above, says why")
	case header.Get(flowControl) != "":
		return "", fmt.Errorf("not from memory but from the API server: have --resources of that spillway name %s, let it "+
			"get, list and watch them, and let it send reviews (system:auth-delegator); /readyz?verbose on its "+
			"--metrics-listen says which of these is missing", resource)
	}
	if !c.marks {
		return "at resourceVersion " + l.Metadata.ResourceVersion +
			"; whether from memory is unknown, since the API server marks none of its own answers (it is without priority " +
			"and fairness)", nil
	}
	return "from memory, at resourceVersion " + l.Metadata.ResourceVersion, nil
}

// bareVersion is what a version of an API looks like, other than a group.
var bareVersion = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// pathOf is where a resource[.version][.group] is listed: in the version that the API server
// prefers, where none is named.
func (c *Checker) pathOf(ctx context.Context, resource string) (string, error) {
	versioned, plain := schema.ParseResourceArg(resource)
	if versioned == nil || !bareVersion.MatchString(versioned.Version) {
		versioned = &schema.GroupVersionResource{Group: plain.Group, Resource: plain.Resource}
	}
	if versioned.Group == "" {
		return "/api/v1/" + versioned.Resource, nil
	}
	if versioned.Version == "" {
		var g struct{ PreferredVersion struct{ Version string } }
		if _, err := c.do(ctx, http.MethodGet, "/apis/"+versioned.Group, "", &g); err != nil {
			return "", err
		}
		versioned.Version = g.PreferredVersion.Version
	}
	return "/apis/" + versioned.Group + "/" + versioned.Version + "/" + versioned.Resource, nil
}

// do asks, and reads the answer into into, if that is not nil. What is not a success is an error.
func (c *Checker) do(ctx context.Context, method, path, body string, into any) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, answerMost)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.Base.String(), "/")+path,
		strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	response, err := c.Transport.RoundTrip(r)
	if err != nil {
		return nil, unreached(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, bodyMost))
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode/100 != 2:
		return nil, refused(response.StatusCode, text)
	case into == nil:
		return response.Header, nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, fmt.Errorf("the answer is not what a Kubernetes API gives (%w): is --server a spillway?", err)
	}
	return response.Header, nil
}

// unreached says why there was no answer.
func unreached(err error) error {
	var unverified *tls.CertificateVerificationError
	if errors.As(err, &unverified) {
		return fmt.Errorf("its certificate is not believed: %w: give in --ca-file what signed it, and in --server a name "+
			"that it is for", unverified.Err)
	}
	var unnamed *net.DNSError
	if errors.As(err, &unnamed) {
		return &unnamedError{unnamed}
	}
	return fmt.Errorf("no answer: %w: see that its pods are ready, and that no network policy keeps this one out", err)
}

// unnamedError says that a name leads nowhere: no further question can be sent.
type unnamedError struct{ cause *net.DNSError }

func (e *unnamedError) Error() string {
	if e.cause.IsNotFound {
		return fmt.Sprintf("the name %s is not known (%v): see that --server names the Service and its namespace, and that "+
			"the cluster's DNS knows it", e.cause.Name, e.cause)
	}
	return fmt.Sprintf("names cannot be looked up (%v): see that the cluster's DNS is well, and that no network policy "+
		"keeps this pod from it", e.cause)
}

func (e *unnamedError) Unwrap() error { return e.cause }

// refused says what an answer says: a Status as the API server has them, or text.
func refused(code int, body []byte) error {
	var said struct{ Message string }
	if json.Unmarshal(body, &said) != nil || said.Message == "" {
		said.Message = strings.TrimSpace(string(body))
	}
	const most = 300
	said.Message = strings.ReplaceAll(said.Message[:min(most, len(said.Message))], "\n", " ")
	remedy := "its log says more"
	switch code {
	case http.StatusUnauthorized:
		remedy = "give in --token-file a token of this cluster that is good still, for the audience of its API server"
	case http.StatusForbidden:
		remedy = "let whose token that is do this, or take another's"
	case http.StatusNotFound:
		remedy = "see that the API server has this"
	case http.StatusTooManyRequests:
		remedy = "it is starting or has too much to do: try again"
	}
	return fmt.Errorf("%d %s: %s", code, said.Message, remedy)
}
