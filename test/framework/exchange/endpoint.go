package exchange

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Endpoint is a way to the cluster, spoken to without any help: what is sent is what the request
// says, what is received is shown as it came.
type Endpoint struct {
	Name   string
	Base   string
	Config *rest.Config // for clients of a library
	Client *http.Client
}

// NewEndpoint is the way to base with the credentials of config, in HTTP/1.1.
func NewEndpoint(name, base string, config *rest.Config) *Endpoint {
	config = rest.CopyConfig(config)
	config.QPS = -1
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: config.Insecure}}
	if len(config.CAData) > 0 {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(config.CAData)
	}
	return &Endpoint{
		Name: name, Base: base, Config: config,
		Client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
	}
}

// OverHTTP2 is the same way in HTTP/2.
func (e *Endpoint) OverHTTP2() *Endpoint {
	transport := e.Client.Transport.(*http.Transport).Clone()
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP2(true)
	other, client := *e, *e.Client
	client.Transport = transport
	other.Name, other.Client = e.Name+" over HTTP/2", &client
	return &other
}

// Request is a request to both servers.
type Request struct {
	Method string // GET if empty
	Target string // path and query as they go over the wire
	Header map[string]string
	Body   string
}

// Answer is an answer, the whole of it.
type Answer struct {
	Proto  string
	Status int
	Header http.Header // with what net/http takes out of it: Content-Length and Transfer-Encoding
	Body   []byte      // decoded, if it came gzipped
	Length int         // of the body before it was decoded
	Cut    error       // why the body ended, unless it ended properly
	Took   time.Duration

	text bool // Body is what came in protobuf as readable text
}

// UserAgent is what requests call themselves unless they say otherwise. It makes nothing pretty
// (W-9).
const UserAgent = "conformance/1"

// NewRequest makes the request as it stands: no path is cleaned, no escape repaired.
func (e *Endpoint) NewRequest(ctx context.Context, r Request) (*http.Request, error) {
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	var body io.Reader
	if r.Body != "" {
		body = strings.NewReader(r.Body)
	}
	out, err := http.NewRequestWithContext(ctx, method, e.Base, body)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	path, query, _ := strings.Cut(r.Target, "?")
	out.URL.RawQuery = query
	if decoded, err := url.PathUnescape(path); err == nil {
		out.URL.Path, out.URL.RawPath = decoded, path
	} else {
		out.URL.Opaque = path
	}
	out.Header.Set("User-Agent", UserAgent)
	for key, value := range r.Header {
		out.Header.Set(key, value)
	}
	if e.Config.BearerToken != "" && out.Header.Get("Authorization") == "" {
		out.Header.Set("Authorization", "Bearer "+e.Config.BearerToken)
	}
	return out, nil
}

// Do sends a request, and reads the answer to its end.
func (e *Endpoint) Do(ctx context.Context, r Request) (*Answer, error) {
	out, err := e.NewRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	response, err := e.Client.Do(out)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	a := &Answer{Proto: response.Proto, Status: response.StatusCode, Header: WholeHeader(response)}
	a.Body, a.Cut = io.ReadAll(response.Body)
	a.Took, a.Length = time.Since(start), len(a.Body)
	// kube-apiserver begins the gzip stream of a watch with its first event.
	if response.Header.Get("Content-Encoding") == "gzip" && a.Length > 0 {
		if a.Body, err = gunzip(a.Body); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// WholeHeader puts back what net/http has taken out.
func WholeHeader(r *http.Response) http.Header {
	h := r.Header.Clone()
	if len(r.TransferEncoding) > 0 {
		h.Set("Transfer-Encoding", strings.Join(r.TransferEncoding, ","))
	}
	if r.Close {
		h.Set("Connection", "close")
	}
	return h
}

func gunzip(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("a body that says it is gzipped: %w", err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("a body that says it is gzipped: %w", err)
	}
	return plain, nil
}
