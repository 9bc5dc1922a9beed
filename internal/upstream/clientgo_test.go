package upstream

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
)

// client-go's detector of inconsistencies compares what it received with a list, and panics unless
// all it can reach is equal.
func TestItemsOfEqualBytesAreEqual(t *testing.T) {
	raw := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u",` +
		`"resourceVersion":"7","labels":{"k":"v"}}}`
	var metas [2]any
	for i := range metas {
		o, err := configMaps.Parse([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		m, err := meta.Accessor(item{o})
		if err != nil {
			t.Fatal(err)
		}
		if m.GetName() != "a" || m.GetNamespace() != "n" || m.GetUID() != "u" || m.GetResourceVersion() != "7" {
			t.Errorf("%q %q %q %q", m.GetName(), m.GetNamespace(), m.GetUID(), m.GetResourceVersion())
		}
		metas[i] = m
	}
	if !reflect.DeepEqual(metas[0], metas[1]) {
		t.Errorf("%+v is not %+v", metas[0], metas[1])
	}
}
