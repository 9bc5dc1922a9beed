package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

const (
	oddGroup = "odd.example.com"
	odd      = "/apis/" + oddGroup + "/v1/namespaces/" + kinds + "/oddities"
)

// oddValues is JSON that a proxy might be tempted to write in another way than it came.
func oddValues() map[string]string {
	return map[string]string{
		"numbers": `[0,-0,1,1.0,1.50,1e3,1E+3,1e-7,100000000000000000000,12345678901234567890,` +
			`9223372036854775807,-9223372036854775808,0.1,1e300]`,
		"strings": `["","<&>","\u003c","\u2028\u2029","\u0000\u001f","\"\\\/\b\f\n\r\t","ü€😀","\ud83d\ude00","\ufffd"," "]`,
		"keys": `{"":1,"a b":2,"<&>":3,"ü":4,"z":{"b":1,"a":2},"kind":"Not","apiVersion":"not/v1",` +
			`"metadata":{"resourceVersion":"5","name":"other"}}`,
		"nothing":   `[null,{},[],{"a":null},[[],[{}]]]`,
		"depth":     strings.Repeat(`{"d":[`, 200) + "1" + strings.Repeat(`]}`, 200),
		"length":    `"` + strings.Repeat("long ", 40000) + `"`,
		"sameKey":   `{"a":1,"a":2}`,
		"items":     `[{"kind":"Oddity","items":[{"metadata":{}}]},"]}","{\"items\":[","\\"]`,
		"lookalike": `{"type":"ADDED","object":{"kind":"Status","metadata":{"resourceVersion":"1"}}}`,
	}
}

// makeOddities defines a kind whose objects may hold anything, and makes some: directly, and by
// server-side apply.
func (s *suite) makeOddities(t *testing.T) {
	t.Helper()
	client, err := apiextensions.NewForConfig(s.cp.Config(controlplane.Admin))
	must(t, err)
	anything := true
	_, err = client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(),
		&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "oddities." + oddGroup},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: oddGroup, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "oddities", Singular: "oddity", Kind: "Oddity",
					ListKind: "Oddities"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: &anything,
					}},
				}},
			},
		}, metav1.CreateOptions{})
	must(t, err)
	process.Awaiting(t, "the oddities to be served", func(ctx context.Context) error {
		a, err := s.direct.Do(ctx, request{Target: odd})
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("%d %s", a.Status, exchange.Clip(a.Body))
		}
		return err
	})
	for name, value := range oddValues() {
		body := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Oddity",`+
			`"metadata":{"name":"%s","labels":{"odd":"yes"},"annotations":{"a":"<\u2028>"}},"value":%s}`,
			oddGroup, strings.ToLower(name), value)
		s.write(t, http.MethodPost, odd, jsonType, body)
		apply := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Oddity","metadata":{"name":"%s"},"applied":{"n":1.0}}`, oddGroup,
			strings.ToLower(name))
		s.write(t, http.MethodPatch, odd+"/"+strings.ToLower(name)+"?fieldManager=someone", "application/apply-patch+yaml",
			apply)
	}
}

// write changes something at the API server.
func (s *suite) write(t *testing.T, method, target, kind, body string) {
	t.Helper()
	r := request{Method: method, Target: target, Header: map[string]string{"Content-Type": kind}, Body: body}
	a, err := s.direct.Do(t.Context(), r)
	must(t, err)
	if a.Status >= http.StatusBadRequest {
		t.Fatalf("%s %s: %d %s", method, target, a.Status, exchange.Clip(a.Body))
	}
}

// oddities read them: what upstream stores is served to the byte.
func oddities() []scenario {
	var all []scenario
	for name := range oddValues() {
		object := odd + "/" + strings.ToLower(name) + "?resourceVersion=0"
		all = append(all,
			get(name, "W-8 W-235", object, memory, 0),
			get(name+" partially", "W-45", object, memory, 0).with("Accept", jsonType+asPartial),
			get(name+" by name", "W-8 W-60", odd+"?resourceVersion=0&fieldSelector=metadata.name%3D"+strings.ToLower(name),
				memory, 0),
			get(name+" watched", "W-8 W-130", odd+"?resourceVersion=0&watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3D"+
				strings.ToLower(name), memory, 0))
	}
	return over("oddity", all)
}
