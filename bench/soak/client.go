package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"spillway/bench/rig"
)

// churnClient is a client that comes in one of many ways, stays a while and leaves in one of many
// ways.
type churnClient struct {
	base   string // where it goes: the plain or the TLS listener
	client *http.Client
	random *rand.Rand
	stay   time.Duration // at most
}

// clientVisit is one way to come and go.
type clientVisit struct {
	name string
	pay  func(*churnClient, context.Context) error
}

// visits are the ways. Each ends by itself.
var visits = []clientVisit{
	{"watch from now, hang up", func(v *churnClient, ctx context.Context) error {
		return v.watch(ctx, url.Values{"resourceVersion": {"0"}}, v.while())
	}},
	{"watch-list, hang up", func(v *churnClient, ctx context.Context) error {
		return v.watch(ctx, url.Values{"sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
			"allowWatchBookmarks": {"true"}}, v.while())
	}},
	{"watch-list, hang up at once", func(v *churnClient, ctx context.Context) error {
		return v.watch(ctx, url.Values{"sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
			"allowWatchBookmarks": {"true"}}, 0)
	}},
	{"watch by label to its timeout", func(v *churnClient, ctx context.Context) error {
		return v.watch(ctx, url.Values{"resourceVersion": {"0"}, "labelSelector": {"n=" + strconv.Itoa(v.random.IntN(10))},
			"timeoutSeconds": {"1"}}, patience)
	}},
	{"watch from too old a version", func(v *churnClient, ctx context.Context) error {
		return v.watch(ctx, url.Values{"resourceVersion": {"1"}}, v.while())
	}},
	{"watch as protobuf, hang up", func(v *churnClient, ctx context.Context) error {
		return v.glance(ctx, "?watch=true&resourceVersion=0", runtime.ContentTypeProtobuf)
	}},
	{"watch a table (passes through)", func(v *churnClient, ctx context.Context) error {
		return v.glance(ctx, "?watch=true&resourceVersion=0", "application/json;as=Table;v=v1;g=meta.k8s.io")
	}},
	{"list, then watch from there", (*churnClient).listAndWatch},
	{"list page by page", (*churnClient).pages},
	{"list, gzip'd", (*churnClient).gzipped},
	{"list as protobuf", (*churnClient).protobuf},
	{
		"consistent list (passes through)",
		func(v *churnClient, ctx context.Context) error { return v.read(ctx, url.Values{}) },
	},
	{"list, half read", (*churnClient).half},
	{"stall, then hang up", (*churnClient).stall},
	{"half a request", (*churnClient).unfinished},
}

const path = "/api/v1/namespaces/default/configmaps"

// patience bounds one visit.
const patience = 30 * time.Second

func (v *churnClient) while() time.Duration { return time.Duration(v.random.Int64N(int64(v.stay))) }

// watch watches for a while, or to the end of the watch.
func (v *churnClient) watch(ctx context.Context, query url.Values, while time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := rig.OpenWatch(ctx, v.client, v.base+path, query)
	if err != nil {
		return expected(err)
	}
	defer w.Close()
	defer time.AfterFunc(while, cancel).Stop()
	for {
		if _, err := w.Next(); err != nil {
			if ctx.Err() != nil || errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("watch: %w", err)
		}
	}
}

// expected takes away the errors that a visit may end with: 410 is a good answer to too old a
// version.
func expected(err error) error {
	var status *rig.StatusError
	if errors.As(err, &status) && status.Code == http.StatusGone {
		return nil
	}
	return err
}

// get requests the collection. Header fields are name, value, name, value...
func (v *churnClient) get(ctx context.Context, query string, header ...string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+path+query, nil)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := v.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("%s of %s", response.Status, query)
	}
	return response, nil
}

// glance watches in another form for a while. What comes is not read closely.
func (v *churnClient) glance(ctx context.Context, query, accept string) error {
	ctx, cancel := context.WithTimeout(ctx, v.while()+time.Millisecond)
	defer cancel()
	response, err := v.get(ctx, query, "Accept", accept)
	if err == nil {
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// gzipped lists as a client does that takes gzip.
func (v *churnClient) gzipped(ctx context.Context) error {
	response, err := v.get(ctx, "?resourceVersion=0", "Accept", "application/json", "Accept-Encoding", "gzip")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body := io.Reader(response.Body)
	if response.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			return err
		}
	}
	var list metav1.PartialObjectMetadataList
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, body) // the checksum is at the end
	return err
}

// protobuf lists in that encoding.
func (v *churnClient) protobuf(ctx context.Context) error {
	response, err := v.get(ctx, "?resourceVersion=0", "Accept", runtime.ContentTypeProtobuf)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && !bytes.HasPrefix(body, []byte("k8s\x00")) {
		err = fmt.Errorf("not protobuf: %.20q", body)
	}
	return err
}

// list lists and returns what came.
func (v *churnClient) list(ctx context.Context, query url.Values) (*metav1.PartialObjectMetadataList, error) {
	body, err := rig.Get(ctx, v.client, v.base+path+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var list metav1.PartialObjectMetadataList
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	_, err = io.Copy(io.Discard, body) // to its end, so that the connection is used again
	return &list, err
}

func (v *churnClient) read(ctx context.Context, query url.Values) error {
	_, err := v.list(ctx, query)
	return err
}

func (v *churnClient) listAndWatch(ctx context.Context) error {
	list, err := v.list(ctx, url.Values{"resourceVersion": {"0"}})
	if err != nil {
		return err
	}
	return v.watch(ctx, url.Values{"resourceVersion": {list.ResourceVersion}, "allowWatchBookmarks": {"true"}}, v.while())
}

func (v *churnClient) pages(ctx context.Context) error {
	list, err := v.list(ctx, url.Values{"resourceVersion": {"0"}})
	if err != nil {
		return err
	}
	query := url.Values{"resourceVersion": {list.ResourceVersion}, "resourceVersionMatch": {"Exact"}, "limit": {"7"}}
	for {
		page, err := v.list(ctx, query)
		if err != nil {
			return expected(err)
		}
		if page.Continue == "" {
			return nil
		}
		query = url.Values{"limit": {"7"}, "continue": {page.Continue}}
	}
}

// half hangs up in the middle of an answer.
func (v *churnClient) half(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := rig.Get(ctx, v.client, v.base+path+"?resourceVersion=0")
	if err != nil {
		return err
	}
	_, err = bufio.NewReader(body).ReadByte()
	return errors.Join(err, body.Close())
}

func (v *churnClient) stall(ctx context.Context) error {
	s, err := rig.Stall(ctx, v.base, path+"?watch=true&resourceVersion=0", rig.SmallWindow)
	if err != nil {
		return err
	}
	defer s.Close()
	select {
	case <-time.After(v.while()):
	case <-ctx.Done():
	}
	return nil
}

// unfinished sends the beginning of a request.
func (v *churnClient) unfinished(ctx context.Context) error {
	u, err := url.Parse(v.base)
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: ")
	time.Sleep(v.while() / 10)
	return err
}
