package plan

import (
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/apistatus"
	"spillway/internal/source"
)

// TestPlanRefusals: what upstream refuses is refused here in its words, whichever request it is
// about (W-26 to W-32, W-150, W-151), and in its order (W-30).
func TestPlanRefusals(t *testing.T) {
	p := testPlanner(t)
	const invalid = `422 ListOptions.meta.k8s.io "" is invalid: `
	for _, c := range []struct{ rule, query, want string }{
		{"W-26", "limit=abc", `400 strconv.ParseInt: parsing "abc": invalid syntax`},
		{"W-24 an empty integer", "limit=", `400 strconv.ParseInt: parsing "": invalid syntax`},
		{"W-26", "resourceVersion=0&limit=9223372036854775808",
			`400 strconv.ParseInt: parsing "9223372036854775808": value out of range`},
		{"W-26", "resourceVersion=0&timeoutSeconds=1.5", `400 strconv.ParseInt: parsing "1.5": invalid syntax`},
		{"W-30 integers before selectors", "labelSelector=!&timeoutSeconds=x",
			`400 strconv.ParseInt: parsing "x": invalid syntax`},
		{"W-30 labels before fields", "labelSelector=!&fieldSelector=foo",
			"400 unable to parse requirement: found '', expected: identifier"},
		{"W-30 selectors before versions", "fieldSelector=foo&resourceVersion=0&resourceVersionMatch=Foo",
			"400 invalid selector: 'foo'; can't understand 'foo'"},
		{"W-30 combinations before versions", "resourceVersion=abc&resourceVersionMatch=Foo",
			invalid + `resourceVersionMatch: Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""`},
		{"W-30 combinations before tokens", "continue=x&sendInitialEvents=1",
			invalid + "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"},
		{"W-31", "resourceVersionMatch=Exact",
			invalid + "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"},
		{"W-31 several", "resourceVersionMatch=Exact&continue=x",
			invalid + "[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless " +
				"resourceVersion is provided, resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when " +
				"continue is provided]"},
		{"W-31", "resourceVersion=0&resourceVersionMatch=Exact",
			invalid + `resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`},
		{"W-150", "resourceVersion=0&labelSelector=a%3D%3D%3D",
			"400 unable to parse requirement: found '=', expected: identifier"},
		{"W-150", "resourceVersion=0&labelSelector=x,", "400 found '', expected: identifier after ','"},
		{"W-151", "resourceVersion=0&fieldSelector=x%3D%5Cx", `400 invalid field selector: invalid escape sequence: \x`},
	} {
		if got := p.Plan(Request{Method: "GET", Path: podsPath, RawQuery: c.query, Plain: true}).text(); got != c.want {
			t.Errorf("%s: %s:\ngot  %q\nwant %q", c.rule, c.query, got, c.want)
		}
	}
}

// A HEAD of a built-in resource is refused whatever else is wrong with it (W-23, W-30).
func TestPlanHead(t *testing.T) {
	p := testPlanner(t)
	for _, target := range []string{
		"/api/v1/pods?resourceVersion=0", "/api/v1/pods?limit=abc", "/api/v1/namespaces/c1/pods/a?resourceVersion=0",
		"/api/v1/pods?watch=1&timeout=x",
		"/api/v1/watch/pods",
	} {
		path, query, _ := strings.Cut(target, "?")
		plan := p.Plan(Request{Method: "HEAD", Path: path, RawQuery: query, Plain: true})
		if !plan.Early {
			t.Errorf("%s: the refusal of a method says something of the resource (W-4)", target)
		}
		if got := plan.text(); got != "405 the server does not allow this method on the requested resource" {
			t.Errorf("%s: got %q", target, got)
		}
		if n := len(apistatus.Body(plan.Status)); n != 197 {
			t.Errorf("%s: a body of %d bytes: %s", target, n, apistatus.Body(plan.Status))
		}
	}
}

// TestRefusalBodies are the bodies of the answers, byte for byte (W-27, W-68, W-82, W-96, W-171,
// W-175).
func TestRefusalBodies(t *testing.T) {
	const head = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":`
	decoded := func(query string) error {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		_, err = decodeOptions(values, true)
		return err
	}
	_, malformed := parseRV("abc")
	for _, c := range []struct {
		rule string
		err  error
		want string
	}{
		{"W-171", decoded("limit=abc"),
			`"strconv.ParseInt: parsing \"abc\": invalid syntax","reason":"BadRequest","code":400}`},
		{"W-175", decoded("sendInitialEvents=1"),
			`"ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",` +
				`"reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions",` +
				`"causes":[{"reason":"FieldValueForbidden",` +
				`"message":"Forbidden: sendInitialEvents is forbidden for list","field":"sendInitialEvents"}]},"code":422}`},
		{"W-27", malformed, `"resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": ` +
			`invalid syntax","code":500}`},
		{"W-68", &source.TooLargeError{Requested: 100278, Current: 280},
			`"Timeout: Too large resource version: 100278, current: 280","reason":"Timeout","details":` +
				`{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],` +
				`"retryAfterSeconds":1},"code":504}`},
		{"W-96", apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "zz"),
			`"configmaps \"zz\" not found","reason":"NotFound","details":{"name":"zz","kind":"configmaps"},"code":404}`},
		{"W-96 custom", apierrors.NewNotFound(schema.GroupResource{Group: "wire.example", Resource: "widgets"}, "nope"),
			`"widgets.wire.example \"nope\" not found","reason":"NotFound","details":{"name":"nope",` +
				`"group":"wire.example","kind":"widgets"},"code":404}`},
	} {
		if got := string(apistatus.Body(apistatus.Of(c.err))); got != head+c.want+"\n" {
			t.Errorf("%s:\ngot  %swant %s", c.rule, got, head+c.want)
		}
	}
}
