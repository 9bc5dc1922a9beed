package revocation

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/exchange"
	"spillway/test/framework/wire"
)

// most is how long a watch may deliver events after its user has lost the right.
const most = 30 * time.Second

// clientFor is an HTTP client with connections of its own, for one user.
func clientFor(to wire.Address, http2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: to.TLS, DisableCompression: true, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP2(http2)
	transport.Protocols.SetHTTP1(!http2)
	return &http.Client{Transport: transport}
}

// watch is one WATCH request and what comes of it.
type watch struct {
	events chan exchange.Event
	status int
	body   []byte // of a refusal; read after events is closed
	err    error  // why the stream broke; nil: it ended as watches end. Read after events is closed
}

// open opens a watch. Its first events are the state, if rv is "0".
func open(
	ctx context.Context,
	client *http.Client,
	to wire.Address,
	p authcluster.User,
	path, rv string,
) (*watch, error) {
	target := "https://" + to.Host + path + "?watch=1&allowWatchBookmarks=true&resourceVersion=" + rv
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range p.Header {
		request.Header[name] = values
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	w := &watch{status: response.StatusCode, events: make(chan exchange.Event, 1024)}
	go w.read(response.Body)
	return w, nil
}

func (w *watch) read(body io.ReadCloser) {
	defer close(w.events)
	defer body.Close()
	if w.status != http.StatusOK {
		w.body, w.err = io.ReadAll(body)
		return
	}
	for r := bufio.NewReader(body); ; {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			w.events <- exchange.ParseEvent(line)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				w.err = err
			}
			return
		}
	}
}

// said is the message of a Status.
func said(body []byte) string {
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil {
		return strings.TrimSpace(string(body))
	}
	return status.Message
}
