package upstream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
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

// BenchmarkSync is what it costs to take over 10000 pods of 3 to 4 KiB, and what client-go's
// dynamic informer pays for the same bytes. Both read them from memory, so that it is neither the
// network nor a server that is measured.
func BenchmarkSync(b *testing.B) {
	const pods = 10000
	for _, initial := range []string{"watch-list", "list"} {
		recorded := record(pods, initial == "watch-list")
		cfg := &rest.Config{Host: "http://upstream.test", QPS: -1,
			WrapTransport: func(http.RoundTripper) http.RoundTripper { return recorded }}
		run := func(name string, sync func(context.Context, *testing.B)) {
			b.Run(initial+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(recorded.body)))
				before := cpu(b)
				for b.Loop() {
					ctx, cancel := context.WithCancel(b.Context())
					sync(ctx, b)
					cancel()
				}
				b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(b.N*pods), "cpu-ns/object")
			})
		}
		run("reflector", func(ctx context.Context, b *testing.B) { syncReflector(ctx, b, cfg, pods) })
		run("dynamic", func(ctx context.Context, b *testing.B) { syncDynamic(ctx, b, cfg, pods) })
	}
}

var podsGVR = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

func syncReflector(ctx context.Context, b *testing.B, cfg *rest.Config, want int) {
	client := clientFor(b, cfg)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sink := firstStateSink{cancel: cancel}
	_ = NewReflector(client, object.NewResource(podsGVR, "Pod", true, true), &sink).Run(ctx)
	if sink.objects != want {
		b.Fatalf("%d objects arrived, want %d", sink.objects, want)
	}
}

// firstStateSink is a Sink that has enough with the first state.
type firstStateSink struct {
	Sink
	cancel  func()
	objects int
}

func (a *firstStateSink) Replace(objects []*object.Object, _ uint64) error {
	a.objects = len(objects)
	a.cancel()
	return nil
}

func (a *firstStateSink) Bookmark(*object.Bookmark, uint64) error { return nil }

func syncDynamic(ctx context.Context, b *testing.B, cfg *rest.Config, want int) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := factory.ForResource(podsGVR).Informer()
	factory.Start(ctx.Done())
	for !informer.HasSynced() {
		time.Sleep(time.Millisecond)
	}
	if n := len(informer.GetStore().ListKeys()); n != want {
		b.Fatalf("%d objects arrived, want %d", n, want)
	}
	cancel()
	factory.Shutdown()
}

// cpu is the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// recordedAnswer is upstream's answer to a watch-list, which then stays open, or to a LIST, if it
// takes no watch-lists.
type recordedAnswer struct {
	body      []byte
	watchList bool
}

func record(pods int, watchList bool) *recordedAnswer {
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
		item, _ := bytes.CutPrefix(objecttest.ClusterPod(i), []byte(`{"kind":"Pod","apiVersion":"v1",`))
		r.body = append(append(r.body, '{'), item...)
	}
	r.body = append(r.body, "]}"...)
	return r
}

// RoundTrip answers as upstream does.
func (r *recordedAnswer) RoundTrip(q *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Request: q}
	query := q.URL.Query()
	switch {
	case query.Get("watch") == "" || r.watchList && query.Get("sendInitialEvents") == "true":
		answer.Body = io.NopCloser(io.MultiReader(bytes.NewReader(r.body), blockedBody{q.Context()}))
		if query.Get("watch") == "" {
			answer.Body = io.NopCloser(bytes.NewReader(r.body))
		}
	case query.Get("watch") != "" && query.Get("sendInitialEvents") == "":
		answer.Body = io.NopCloser(blockedBody{q.Context()})
	default:
		answer.StatusCode = http.StatusUnprocessableEntity
		answer.Body = io.NopCloser(
			bytes.NewReader([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)))
	}
	return answer, nil
}

// blockedBody is a body of which nothing comes until the request ends.
type blockedBody struct{ ctx context.Context }

func (s blockedBody) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// WrappedRoundTripper says that there is no connection to close.
func (r *recordedAnswer) WrappedRoundTripper() http.RoundTripper { return &http.Transport{} }
