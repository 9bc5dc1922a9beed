package fakeapiserver

import (
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Edit changes an object that is about to be stored; m is its JSON, owned by the Edit.
type Edit func(m map[string]any)

// WithField sets the value at a dotted path such as spec.nodeName. The value is JSON-like: string,
// bool, int, int64, float64, map or slice.
func WithField(path string, value any) Edit {
	if n, ok := value.(int); ok {
		value = int64(n)
	}
	return withValue(value, split(path)...)
}

// WithoutField removes what is at a dotted path.
func WithoutField(path string) Edit {
	return func(m map[string]any) { unstructured.RemoveNestedField(m, split(path)...) }
}

// WithLabel sets one label.
func WithLabel(key, value string) Edit { return withValue(value, "metadata", "labels", key) }

// WithAnnotation sets one annotation.
func WithAnnotation(key, value string) Edit { return withValue(value, "metadata", "annotations", key) }

// WithData sets one entry of data: of a config map as it is, of a secret it must be base64.
func WithData(key, value string) Edit { return withValue(value, "data", key) }

// WithPadding makes the object n bytes larger: an annotation of n bytes.
func WithPadding(n int) Edit { return WithAnnotation("padding", strings.Repeat("x", n)) }

// WithFinalizers replaces the finalizers; none removes them, which completes a deletion under way
// (W-104).
func WithFinalizers(names ...string) Edit {
	return func(m map[string]any) {
		if len(names) == 0 {
			delete(metadata(m), "finalizers")
			return
		}
		list := make([]any, len(names))
		for i, name := range names {
			list[i] = name
		}
		metadata(m)["finalizers"] = list
	}
}

// WithJSON replaces top-level fields by those of a JSON object; metadata is merged one level deep.
func WithJSON(raw string) Edit {
	return func(m map[string]any) {
		var from map[string]any
		if err := utiljson.Unmarshal([]byte(raw), &from); err != nil {
			panic(fmt.Sprintf("BUG: WithJSON: %v", err))
		}
		maps.Copy(metadata(m), metadata(from))
		delete(from, "metadata")
		maps.Copy(m, from)
	}
}

func withValue(value any, path ...string) Edit {
	return func(m map[string]any) {
		if err := unstructured.SetNestedField(m, value, path...); err != nil {
			panic(fmt.Sprintf("BUG: %s: %v", strings.Join(path, "."), err))
		}
	}
}

func split(path string) []string { return strings.Split(path, ".") }
