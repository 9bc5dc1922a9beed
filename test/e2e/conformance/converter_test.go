package conformance

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// converter is the conversion webhook of the panels. A panel is stored in v1, with a size; v2 shows
// the same within dimensions, along with a unit that is the webhook's own. So what an API server
// shows in v2 is a matter not of the object alone: it is also one of how the webhook fares, which
// is said here. Safe for use by several goroutines.
type converter struct {
	server *httptest.Server

	mu     sync.Mutex
	broken bool
	unit   string
}

// newConverter serves until the test ends.
func newConverter(t *testing.T) *converter {
	t.Helper()
	c := &converter{unit: "mm"}
	c.server = httptest.NewTLSServer(c)
	t.Cleanup(c.server.Close)
	return c
}

// breakDown has every conversion fail from now on.
func (c *converter) breakDown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
}

// repair has conversions succeed again, with another unit.
func (c *converter) repair(unit string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken, c.unit = false, unit
}

// conversion is how a definition names the webhook.
func (c *converter) conversion() *apiextensionsv1.CustomResourceConversion {
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL:      &c.server.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw}),
			},
			ConversionReviewVersions: []string{"v1"},
		},
	}
}

// ServeHTTP answers a review.
func (c *converter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "this is no review", http.StatusBadRequest)
		return
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID,
		Result: metav1.Status{Status: metav1.StatusSuccess}}
	if converted, err := c.convert(review.Request); err != nil {
		review.Response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
	} else {
		review.Response.ConvertedObjects = converted
	}
	review.Request = nil
	w.Header().Set("Content-Type", jsonType)
	_ = json.NewEncoder(w).Encode(&review) // fails for an API server that has left
}

func (c *converter) convert(r *apiextensionsv1.ConversionRequest) ([]runtime.RawExtension, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return nil, errors.New("out of order")
	}
	var converted []runtime.RawExtension
	for _, o := range r.Objects {
		p := new(unstructured.Unstructured)
		if err := p.UnmarshalJSON(o.Raw); err != nil {
			return nil, err
		}
		if err := c.reshape(p, r.DesiredAPIVersion); err != nil {
			return nil, err
		}
		converted = append(converted, runtime.RawExtension{Object: p})
	}
	return converted, nil
}

// reshape moves the size to where a version has it.
func (c *converter) reshape(p *unstructured.Unstructured, version string) error {
	old, shown := []string{"spec", "dimensions", "size"}, []string{"spec", "size"}
	if version == newPanels.GroupVersion().String() {
		old, shown = shown, old
	}
	size, found, err := unstructured.NestedInt64(p.Object, old...)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(p.Object, old[:2]...)
	if found {
		if err := unstructured.SetNestedField(p.Object, size, shown...); err != nil {
			return err
		}
	}
	if version == newPanels.GroupVersion().String() {
		if err := unstructured.SetNestedField(p.Object, c.unit, "spec", "dimensions", "unit"); err != nil {
			return err
		}
	}
	p.SetAPIVersion(version)
	return nil
}
