package backfill

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var pods = object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)

var (
	chunked   = object.Encoding{Chunked: true}
	bookmarks = object.Encoding{Chunked: true, Bookmarks: true}
)

// made is a frame that nothing keeps from being made.
func made(frame []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return frame
}

// plenty keeps every event of a test.
var plenty = cache.Limits{HistoryBytes: 1 << 40, HistoryMinAge: time.Hour}

// world is one resource, its hub, and an upstream that numbers what it does.
type world struct {
	testing.TB
	resource *cache.Resource
	hub      *fanout.Hub
	clock    time.Time
	rv       uint64
}

// pod makes an object; app is its label, and its JSON is padded by pad bytes.
func (w *world) pod(key, app string, rv uint64, pad int) *object.Object {
	w.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":%q,"uid":"u-%s",`+
		`"resourceVersion":"%d",`+
		`"labels":{"app":%q}},"spec":{"nodeName":"node-%s"},"pad":%q}`, name, namespace, key, rv, app, app,
		strings.Repeat("x", pad))
	o, err := pods.Parse([]byte(raw))
	if err != nil {
		w.Fatal(err)
	}
	return o
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// drain is everything that a cursor returns until it has nothing more.
func drain(c *fanout.Cursor) ([]byte, error) {
	var all []byte
	for {
		run, err := c.Next()
		if err != nil || len(run) == 0 {
			return all, err
		}
		all = append(all, run...)
	}
}

// decode reads frames as a client would, each as "TYPE key rv", or "BOOKMARK rv".
func decode(t testing.TB, run []byte, enc object.Encoding) []string {
	t.Helper()
	r := io.Reader(bytes.NewReader(run))
	if enc.Chunked {
		r = httputil.NewChunkedReader(io.MultiReader(r, strings.NewReader("0\r\n\r\n")))
	}
	var out []string
	for d := json.NewDecoder(r); ; {
		var event struct {
			Type   string
			Object struct {
				Metadata struct{ Name, Namespace, ResourceVersion string }
			}
		}
		if err := d.Decode(&event); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatalf("%v in %q", err, run)
		}
		m := event.Object.Metadata
		if event.Type == "BOOKMARK" {
			out = append(out, "BOOKMARK "+m.ResourceVersion)
			continue
		}
		out = append(out, event.Type+" "+m.Namespace+"/"+m.Name+" "+m.ResourceVersion)
	}
}

var everything object.Selector

func namespace(name string) object.Selector { return object.NewSelector(name, "", nil, nil) }

func app(value string) object.Selector {
	return object.NewSelector("", "", labels.SelectorFromSet(labels.Set{"app": value}), nil)
}

func node(value string) object.Selector {
	return object.NewSelector("", "", nil, fields.OneTermEqualSelector("spec.nodeName", value))
}

// except sees everything that is not on a node.
func except(value string) object.Selector {
	return object.NewSelector("", "", nil, fields.OneTermNotEqualSelector("spec.nodeName", value))
}
