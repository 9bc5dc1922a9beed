package upstream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"

	"spillway/internal/object"
	"spillway/internal/object/objecttest"
)

// BenchmarkSync measures the first synchronisation of 10000 pods of 3 to 4 KiB, by the reflector
// and by client-go's dynamic informer. The answers come from memory, so neither the network nor a
// server is measured.
func BenchmarkSync(b *testing.B) {
	const pods = 10000
	for _, initial := range []string{"watch-list", "list"} {
		recorded := record(b, pods, initial == "watch-list")
		cfg := &rest.Config{Host: "http://upstream.test", QPS: -1,
			WrapTransport: func(http.RoundTripper) http.RoundTripper { return recorded }}
		run := func(name string, sync func(*testing.B) (objects int)) {
			b.Run(initial+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(recorded.body)))
				before := cpu(b)
				for b.Loop() {
					if n := sync(b); n != pods {
						b.Fatalf("%d objects arrived, want %d", n, pods)
					}
				}
				b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(b.N*pods), "cpu-ns/object")
			})
		}
		client := clientFor(b, cfg)
		run("reflector", func(b *testing.B) int { return syncReflector(b, client) })
		dynamicClient, err := dynamic.NewForConfig(cfg)
		if err != nil {
			b.Fatal(err)
		}
		run("dynamic", func(b *testing.B) int { return syncDynamic(b, dynamicClient) })
	}
}

// syncTimeout bounds one synchronisation.
const syncTimeout = time.Minute

var podsGVR = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// syncReflector runs a reflector until its sink has the first state, and returns how many objects
// that has.
func syncReflector(b *testing.B, client *Client) (objects int) {
	ctx, cancel := context.WithTimeout(b.Context(), syncTimeout)
	defer cancel()
	sink := firstStateSink{cancel: cancel}
	err := NewReflector(client, object.NewResource(podsGVR, "Pod", true, true), &sink).Run(ctx)
	if !sink.isSet {
		b.Fatalf("the reflector ended without a state: %v", err)
	}
	return sink.objects
}

// firstStateSink is a Sink that ends its reflector with the first state. The nil Sink panics on any
// other call.
type firstStateSink struct {
	Sink
	cancel  func()
	isSet   bool
	objects int
}

func (s *firstStateSink) Replace(objects []*object.Object, _ uint64) error {
	s.isSet, s.objects = true, len(objects)
	s.cancel()
	return nil
}

func (s *firstStateSink) Bookmark(*object.Bookmark, uint64) error { return nil }

// syncDynamic runs a dynamic informer until it has the first state, and returns how many objects
// that has.
func syncDynamic(b *testing.B, client dynamic.Interface) (objects int) {
	ctx, cancel := context.WithTimeout(b.Context(), syncTimeout)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	defer factory.Shutdown() // after cancel
	defer cancel()
	informer := factory.ForResource(podsGVR).Informer()
	factory.Start(ctx.Done())
	select {
	case <-informer.HasSyncedChecker().Done():
	case <-ctx.Done():
		b.Fatal("the informer has no state: ", ctx.Err())
	}
	return len(informer.GetStore().ListKeys())
}

// cpu is the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// recordedAnswer answers as an API server with or without watch-lists: body to a watch-list or a
// LIST, 422 to a watch-list that it does not serve, and a watch without events to any other watch.
// Watches stay open.
type recordedAnswer struct {
	body      []byte // of a watch-list if those are served, else of a LIST
	watchList bool
}

func record(b *testing.B, pods int, watchList bool) *recordedAnswer {
	r := &recordedAnswer{watchList: watchList}
	if watchList {
		for i := range pods {
			r.body = fmt.Appendf(r.body, `{"type":"ADDED","object":%s}`+"\n", objecttest.ClusterPod(i))
		}
		r.body = append(r.body, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":`+
			`{"resourceVersion":"9000000","creationTimestamp":null,`+
			`"annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}}`+"\n"...)
		return r
	}
	r.body = append(r.body, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9000000"},"items":[`...)
	for i := range pods {
		if i > 0 {
			r.body = append(r.body, ',')
		}
		item, found := bytes.CutPrefix(objecttest.ClusterPod(i), []byte(`{"kind":"Pod","apiVersion":"v1",`))
		if !found {
			b.Fatalf("pod %d does not begin with its type", i)
		}
		r.body = append(append(r.body, '{'), item...)
	}
	r.body = append(r.body, "]}"...)
	return r
}

// RoundTrip implements http.RoundTripper.
func (r *recordedAnswer) RoundTrip(q *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Request: q}
	query, open := q.URL.Query(), blockedBody{q.Context()}
	isWatchList := query.Get("sendInitialEvents") != ""
	switch {
	case query.Get("watch") == "":
		answer.Body = io.NopCloser(bytes.NewReader(r.body))
	case !isWatchList:
		answer.Body = io.NopCloser(open)
	case r.watchList:
		answer.Body = io.NopCloser(io.MultiReader(bytes.NewReader(r.body), open))
	default:
		answer.StatusCode = http.StatusUnprocessableEntity
		answer.Body = io.NopCloser(
			strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))
	}
	return answer, nil
}

// blockedBody is a body of which nothing comes until the request ends.
type blockedBody struct{ ctx context.Context }

func (b blockedBody) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

// WrappedRoundTripper returns a transport without connections, so that Client.Close finds one to
// close and does not warn.
func (r *recordedAnswer) WrappedRoundTripper() http.RoundTripper { return &http.Transport{} }
