package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// testDefinition changes a CRD while its objects are watched, and then removes it (W-116).
func (s *suite) testDefinition(t *testing.T) {
	client, err := apiextensions.NewForConfig(s.cp.Config(controlplane.Admin))
	must(t, err)
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	const name = "widgets." + widgetGroup

	t.Run("changes", func(t *testing.T) {
		before, err := s.direct.Do(t.Context(), request{Target: someWidgets + "?resourceVersion=0"})
		must(t, err)
		patch := `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/shape",` +
			`"value":{"type":"string","default":"round"}}]`
		_, err = definitions.Patch(t.Context(), name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
		must(t, err)
		s.sameWidgets(t, before.Body)
		for _, e := range s.sides()[1:] {
			s.mirroring(t, e) // reads pass through until the definition is known to rest
		}
	})
	t.Run("goes", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		defer cancel()
		r := request{Target: someWidgets + "?watch=1&timeoutSeconds=600&resourceVersion=" + s.now(t, someWidgets)}
		var streams []*stream
		for _, e := range s.sides() {
			st := s.openFromMemory(ctx, t, e, r) // mirrors may begin again until a while after the last change
			defer st.cancel()
			streams = append(streams, st)
		}
		must(t, definitions.Delete(t.Context(), name, metav1.DeleteOptions{}))
		var told [3][]event
		for i, st := range streams {
			for line := range st.lines {
				told[i] = append(told[i], exchange.ParseEvent(line))
			}
			if st.err != nil {
				t.Errorf("%s: the stream was cut: %v", s.sides()[i].Name, st.err)
			}
		}
		for i, e := range s.sides()[1:] {
			s.sameStory(t, watcher{name: "removal", rules: "W-116", path: someWidgets, until: ""}, e.Name, streams[0], told[0],
				streams[i+1], told[i+1])
		}
		for _, e := range s.sides()[1:] {
			process.Awaiting(t, e.Name+" to know that the widgets are gone", func(ctx context.Context) error {
				direct, proxied := s.both(t, e, request{Target: someWidgets + "?resourceVersion=0"}, process.Patience)
				if direct == nil {
					return errors.New("no answer")
				}
				if c := exchange.Compare(s.tally, r, direct, proxied); direct.Status != http.StatusNotFound || len(c.Problems) > 0 {
					return fmt.Errorf("%d: %v", direct.Status, c.Problems)
				}
				return nil
			})
			s.show(t, "W-116 W-172", upstream)
		}
	})
}

// sameWidgets waits until the API server shows the widgets in another way than before, under the
// same resourceVersions, and the proxies do, too.
func (s *suite) sameWidgets(t *testing.T, before []byte) {
	t.Helper()
	for _, e := range s.sides()[1:] {
		process.Awaiting(t, e.Name+" to show widgets as they are defined now", func(context.Context) error {
			r := request{Target: someWidgets + "?resourceVersion=0"}
			direct, proxied := s.both(t, e, r, process.Patience)
			if direct == nil {
				return errors.New("no answer")
			}
			if bytes.Equal(direct.Body, before) || !bytes.Contains(direct.Body, []byte("round")) {
				return errors.New("the API server shows what it did")
			}
			if c := exchange.Compare(s.tally, r, direct, proxied); len(c.Problems) > 0 {
				return fmt.Errorf("%v", c.Problems)
			}
			return nil
		})
		s.show(t, "W-234", upstream)
	}
}
