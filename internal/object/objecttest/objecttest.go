// Package objecttest makes pods and selectors for tests, and reads the frames of watches as clients
// do.
package objecttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httputil"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

// Pods is the resource of all objects here.
var Pods = object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)

// Pod makes a pod. app is its label, and its node is node-app. pad bytes are added to its JSON.
func Pod(t testing.TB, key, app string, rv uint64, pad int) *object.Object {
	t.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":%q,"uid":"u-%s",`+
		`"resourceVersion":"%d","labels":{"app":%q}},"spec":{"nodeName":"node-%s"},"pad":%q}`,
		name, namespace, key, rv, app, app, strings.Repeat("x", pad))
	o, err := Pods.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// InNamespace selects a namespace.
func InNamespace(name string) object.Selector { return object.NewSelector(name, "", nil, nil) }

// WithApp selects by the label app.
func WithApp(value string) object.Selector {
	return object.NewSelector("", "", labels.SelectorFromSet(labels.Set{"app": value}), nil)
}

// OnNode selects by the field spec.nodeName.
func OnNode(value string) object.Selector {
	return object.NewSelector("", "", nil, fields.OneTermEqualSelector("spec.nodeName", value))
}

// NotOnNode selects all pods that are not on a node.
func NotOnNode(value string) object.Selector {
	return object.NewSelector("", "", nil, fields.OneTermNotEqualSelector("spec.nodeName", value))
}

// Drain is everything that a cursor returns until it has nothing more.
func Drain(c interface{ Next() ([]byte, error) }) ([]byte, error) {
	var all []byte
	for {
		run, err := c.Next()
		if err != nil || len(run) == 0 {
			return all, err
		}
		all = append(all, run...)
	}
}

// Decode reads frames as a client does, each as "TYPE key rv", or "BOOKMARK rv".
func Decode(t testing.TB, run []byte, enc object.Encoding) []string {
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
