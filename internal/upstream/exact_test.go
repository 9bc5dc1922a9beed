package upstream

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
)

// An exact state is read whole and in order, whatever was written since, and any part of it can be
// had.
func TestExactState(t *testing.T) {
	for _, res := range []*object.Resource{configMaps, widgets, nodes} {
		s, c := apiserver(t, fakeapiserver.Options{})
		const n = exactPage + 7
		namespace, prefix := "", ""
		if res.Namespaced {
			namespace, prefix = "a", "a/"
		}
		want := map[string]uint64{}
		for i := range n {
			name := fmt.Sprintf("o%05d", i)
			want[prefix+name] = s.Create(res.GVR, namespace, name)
		}
		rv := s.Revision()
		s.Delete(res.GVR, namespace, "o00003")
		s.Create(res.GVR, namespace, "p")
		before := ""
		err := c.Versions(deadline(t), res, rv, func(key string, rv uint64) {
			if key <= before || want[key] != rv {
				t.Errorf("%s: %s at %d after %s, want %d", res, key, rv, before, want[key])
			}
			before = key
			delete(want, key)
		})
		if err != nil || len(want) != 0 {
			t.Errorf("%s: %v, %d objects are missing", res, err, len(want))
		}
		part, err := c.From(deadline(t), res, rv, prefix+"o00002", 3)
		if err != nil || len(part) != 3 || part[0].Key != prefix+"o00002" || part[1].Key != prefix+"o00003" {
			t.Errorf("%s: a part is %v, %v", res, part, err)
		}
		s.Compact()
		if err := c.Versions(deadline(t), res, rv, func(string, uint64) {}); !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: a state that is gone: %v", res, err)
		}
	}
}
