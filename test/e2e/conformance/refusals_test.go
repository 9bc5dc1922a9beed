package conformance

import (
	"net/http"

	"spillway/test/framework/exchange"
)

// refusals are requests that are answered with an error, in the API server's very bytes (W-20 to
// W-35, W-170 to W-179).
func refusals() []scenario {
	return over("refused", numbers(), combinations(), badSelectors(), badTokens(), methods(), order())
}

func numbers() []scenario {
	return over("number", []scenario{
		get("list abc", "W-27 W-170", c1+"?resourceVersion=abc", memory, 400),
		get("list -1", "W-27", c1+"?resourceVersion=-1", memory, 400),
		get("list 1.5", "W-27", c1+"?resourceVersion=1.5", memory, 400),
		get("list blank", "W-27", c1+"?resourceVersion=+1", memory, 400),
		get("list beyond uint64", "W-27", c1+"?resourceVersion=18446744073709551616", memory, 400),
		get("list beyond int64", "W-27 W-68", c1+"?resourceVersion=9223372036854775808", memory, 504),
		get("list custom", "W-27", someWidgets+"?resourceVersion=abc", memory, 400),
		get("watch abc", "W-27 W-108", c1+"?watch=1&resourceVersion=abc", memory, 500),
		get("watch -1", "W-27", c1+"?watch=1&resourceVersion=-1", memory, 500),
		get("limit abc", "W-26 W-171", c1+"?resourceVersion=0&limit=abc", memory, 400),
		get("limit empty", "W-24 W-26", c1+"?resourceVersion=0&limit=", memory, 400),
		get("limit too large", "W-26", c1+"?resourceVersion=0&limit=9223372036854775808", memory, 400),
		get("limit 1.5", "W-26", c1+"?resourceVersion=0&limit=1.5", memory, 400),
		get("timeoutSeconds abc", "W-26", c1+"?resourceVersion=0&timeoutSeconds=abc", memory, 400),
		get("watch timeoutSeconds abc", "W-26", c1+"?watch=1&resourceVersion=0&timeoutSeconds=abc", memory, 400),
		get("watch limit abc", "W-26 W-32", c1+"?watch=1&resourceVersion=0&limit=abc", memory, 400),
		// the answer does not show its source: testRequests counts
		get("timeout abc", "W-28", c1+"?resourceVersion=0&timeout=abc", either, 400),
		get("timeout without unit", "W-28", c1+"?resourceVersion=0&timeout=5", either, 400),
		get("timeout empty", "W-28", c1+"?resourceVersion=0&timeout=", memory, 0),
	})
}

// combinations are those of W-31 and W-32.
func combinations() []scenario {
	return over("combination", []scenario{
		get("match without version", "W-31 W-175", c1+"?resourceVersionMatch=NotOlderThan", memory, 422),
		get("match Exact without version", "W-31", c1+"?resourceVersionMatch=Exact", memory, 422),
		get("match with continue", "W-31", c1+"?resourceVersion=0&resourceVersionMatch=NotOlderThan&continue=${token-last}",
			memory, 422),
		get("unknown match", "W-31", c1+"?resourceVersion=0&resourceVersionMatch=Foo", memory, 422),
		get("match in lower case", "W-31", c1+"?resourceVersion=0&resourceVersionMatch=exact", memory, 422),
		get("Exact at 0", "W-31", c1+"?resourceVersion=0&resourceVersionMatch=Exact", memory, 422),
		get("sendInitialEvents on a list", "W-31 W-175", c1+"?resourceVersion=0&sendInitialEvents=true", memory, 422),
		get("sendInitialEvents=false on a list", "W-31", c1+"?resourceVersion=0&sendInitialEvents=false", memory, 422),
		get("several", "W-31", c1+"?resourceVersionMatch=Foo&sendInitialEvents=false&continue=x", memory, 422),
		get("version with continue", "W-63", c1+"?resourceVersion=${mid}&continue=${token-last}", memory, 400),
		get("watch sendInitialEvents without match", "W-32", c1+"?watch=1&resourceVersion=0&sendInitialEvents=true", memory,
			422),
		get("watch sendInitialEvents=false without match", "W-32", c1+"?watch=1&resourceVersion=0&sendInitialEvents=false",
			memory, 422),
		get("watch match without sendInitialEvents", "W-32",
			c1+"?watch=1&resourceVersion=0&resourceVersionMatch=NotOlderThan", memory, 422),
		get("watch Exact", "W-32", c1+"?watch=1&resourceVersion=${mid}&resourceVersionMatch=Exact&sendInitialEvents=true",
			memory, 422),
		get("watch unknown match", "W-32", c1+"?watch=1&resourceVersion=${mid}&resourceVersionMatch=Foo", memory, 422),
		get("watch match with continue", "W-32",
			c1+"?watch=1&resourceVersion=0&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&continue=x", memory, 422),
		get("deprecated watch sendInitialEvents", "W-33",
			"/api/v1/watch/namespaces/c1/configmaps?resourceVersionMatch=NotOlderThan&sendInitialEvents=true", memory, 422),
		get("deprecated watch of a name with another selector", "W-33",
			"/api/v1/watch/namespaces/c1/configmaps/a?fieldSelector=metadata.name%3Db", memory, 400),
		get("deprecated watch of nothing", "W-30 W-33", "/api/v1/watch?timeoutSeconds=1", upstream, 500),
		get("custom unknown match", "W-31", someWidgets+"?resourceVersion=0&resourceVersionMatch=Foo", memory, 422),
		get("watch custom sendInitialEvents without match", "W-32", someWidgets+
			"?watch=1&resourceVersion=0&sendInitialEvents=true", memory, 422),
	})
}

func badSelectors() []scenario {
	var all []scenario
	for _, text := range []string{
		"=", "a===", "!", "x,", "x,,y", "x in (a", "x exists", "x=a b", "x=y=z", "x>a", "x=-bad-", "a/b/c", "x in", "(",
		"x notin a", "é=1",
	} {
		all = append(all,
			get("label "+text, "W-150 W-154", c1+"?resourceVersion=0&labelSelector="+escape(text), memory, 400),
			get("watch label "+text, "W-150 W-108", c1+"?watch=1&resourceVersion=0&labelSelector="+escape(text), memory, 400))
	}
	for _, text := range []string{"foo", `x=\x`, "metadata.name=a=b"} {
		all = append(all,
			get("field "+text, "W-151 W-154", c1+"?resourceVersion=0&fieldSelector="+escape(text), memory, 400),
			get("watch field "+text, "W-151 W-154", c1+"?watch=1&resourceVersion=0&fieldSelector="+escape(text), memory, 400))
	}
	// Which fields there are is the API server's to say: a newer one may have more.
	for _, f := range []struct{ path, text string }{
		{c1, "zzz=1"}, {c1, "status.phase = Running"}, {c1, "metadata.labels=x"},
		{"/api/v1/pods", "spec.foo=1"}, {"/api/v1/nodes", "metadata.namespace=x"}, {"/api/v1/namespaces", "name=c1"},
		{"/api/v1/namespaces", "metadata.namespace=c1"},
		{"/api/v1/secrets", "data=x"}, {"/api/v1/services", "spec.foo!=1"}, {deployments, "spec.replicas=1"},
		{someWidgets, "spec.note=x"},
		{someWidgets, ".spec.color=x"}, {"/api/v1/endpoints", "x=1"},
	} {
		all = append(all,
			get("field "+f.path+" "+f.text, "W-152 W-154", f.path+"?resourceVersion=0&fieldSelector="+escape(f.text), upstream,
				400),
			get("watch field "+f.path+" "+f.text, "W-152 W-154", f.path+"?watch=1&resourceVersion=0&fieldSelector="+
				escape(f.text), upstream, 400))
	}
	return over("selector", all)
}

// badTokens are those of W-82.
func badTokens() []scenario {
	var all []scenario
	for name, token := range map[string]string{
		"not base64": "!!!", "padded": exchange.EncodeToken(5, "/a\x00") + "==", "not JSON": "aGVsbG8",
		"other version": "eyJ2IjoidjEiLCJydiI6NSwic3RhcnQiOiIvYVx1MDAwMCJ9", "version 0": exchange.EncodeToken(0, "/a\x00"),
		"no start":     exchange.EncodeToken(5, ""),
		"path upwards": exchange.EncodeToken(5, "../c2/a\x00"), "path not clean": exchange.EncodeToken(5, "/a//b\x00"),
		"path upwards now": exchange.EncodeToken(-1, "/../c2/a\x00"),
	} {
		all = append(all, get(name, "W-82", c1+"?limit=1&continue="+escape(token), memory, 400))
	}
	return over("token", all)
}

// methods are those that lists and objects do not have (W-23).
func methods() []scenario {
	const rv = "?resourceVersion=0"
	var all []scenario
	for _, method := range []string{http.MethodHead, http.MethodOptions, http.MethodTrace, "FOO"} {
		from := upstream
		if method == http.MethodHead {
			from = memory
		}
		all = append(all,
			get("list "+method, "W-23 W-173 W-251 W-257", c1+rv, from, 405).by(method),
			get("object "+method, "W-23 W-173", c1+"/a"+rv, from, 405).by(method),
			get("watch "+method, "W-23", c1+rv+"&watch=1", from, 405).by(method))
	}
	all = append(all,
		get("PUT on a list", "W-23 W-173", c1+rv, upstream, 405).by(http.MethodPut),
		get("PATCH on a list", "W-23", c1+rv, upstream, 405).by(http.MethodPatch),
		get("POST on an object", "W-23", c1+"/a"+rv, upstream, 405).by(http.MethodPost),
		get("HEAD of a custom list", "W-23 W-251", someWidgets+"?resourceVersion=${last-widgets}&resourceVersionMatch=Exact",
			upstream, 0).by(http.MethodHead),
		get("HEAD of a custom object", "W-23", someWidgets+"/w1"+rv, upstream, 0).by(http.MethodHead),
		get("OPTIONS of a custom list", "W-23", someWidgets+rv, upstream, 405).by(http.MethodOptions),
		get("PUT on a custom list", "W-23", someWidgets+rv, upstream, 400).by(http.MethodPut),
		get("watch of what has none", "W-4 W-23 W-173", "/api/v1/componentstatuses?watch=1", upstream, 405),
		get("POST nonsense", "W-48 W-179", c1, upstream, 415).by(http.MethodPost).with("Content-Type",
			"text/nonsense").saying("{}"),
		get("POST broken JSON", "W-170", c1, upstream, 400).by(http.MethodPost).with("Content-Type",
			"application/json").saying("{"),
		get("POST what is there", "W-170", c1, upstream, 409).by(http.MethodPost).with("Content-Type", "application/json").
			saying(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`),
		get("POST what is invalid", "W-170", c1, upstream, 422).by(http.MethodPost).with("Content-Type", "application/json").
			saying(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"A B"}}`),
		get("DELETE of what is not there", "W-96", c1+"/zz", upstream, 404).by(http.MethodDelete),
		get("body on a GET", "W-48", c1+rv, upstream, 0).saying("{}").with("Content-Type", "text/nonsense"),
		get("content type on a GET", "W-48", c1+rv, memory, 0).with("Content-Type", "text/nonsense"),
	)
	return over("method", all)
}

// users are requests of users without the right (W-174), and with it. Unauthenticated ones are
// upstream's, as is what is not mirrored; the suite of permissions has many more of them.
func users() []scenario {
	return over("user", []scenario{
		get("unknown token", "W-3 W-174", c1+"?resourceVersion=0", upstream, 401).with("Authorization", "Bearer nonsense"),
		get("unknown token, bad timeout", "W-28 W-30", c1+"?resourceVersion=0&timeout=abc", either, 400).with("Authorization",
			"Bearer nonsense"),
		get("not allowed to list", "W-22 W-174", c1+"?resourceVersion=0", memory, 403).with("Authorization", "Bearer ${bob}"),
		get("not allowed to list one name", "W-22 W-174", c1+"?resourceVersion=0&fieldSelector=metadata.name%3Da", memory,
			403).with("Authorization", "Bearer ${bob}"),
		get("not allowed to watch", "W-22 W-174", c1+"?watch=1&resourceVersion=0", memory, 403).with("Authorization",
			"Bearer ${bob}"),
		get("not allowed to watch one name", "W-22 W-174", c1+"?watch=1&fieldSelector=metadata.name%3Da", memory, 403).with(
			"Authorization", "Bearer ${bob}"),
		get("not allowed to watch the old way", "W-22 W-33", "/api/v1/watch/namespaces/c1/configmaps", memory, 403).with(
			"Authorization", "Bearer ${bob}"),
		get("not allowed to get", "W-174", "/api/v1/nodes/n1?resourceVersion=0", memory, 403).with("Authorization",
			"Bearer ${bob}"),
		get("not allowed a subresource", "W-174", deployments+"/d1/status", upstream, 403).with("Authorization",
			"Bearer ${bob}"),
		get("not allowed, and unknown", "W-30 W-174", "/api/v1/nonsense", upstream, 403).with("Authorization",
			"Bearer ${bob}"),
		get("not allowed, and malformed", "W-30 W-174", c1+"?resourceVersion=abc&limit=abc", memory, 403).with(
			"Authorization", "Bearer ${bob}"),
		get("not allowed a path", "W-174", "/foo", upstream, 403).with("Authorization", "Bearer ${bob}"),
		get("not allowed a custom resource", "W-174", someWidgets, memory, 403).with("Authorization", "Bearer ${bob}"),
		get("allowed here", "W-174 W-233", "/api/v1/namespaces/default/configmaps?resourceVersion=0", memory, 0).with(
			"Authorization", "Bearer ${alice}"),
		get("not allowed everywhere", "W-174 W-233", allMaps+"?resourceVersion=0", memory, 403).with("Authorization",
			"Bearer ${alice}"),
	})
}

// order is which of several errors is reported (W-30).
func order() []scenario {
	return over("order", []scenario{
		get("limit before selector", "W-30", c1+"?limit=abc&labelSelector=%3D", memory, 400),
		get("label selector before field selector", "W-30", c1+"?labelSelector=%3D&fieldSelector=foo", memory, 400),
		get("validation before field label", "W-30", c1+"?resourceVersionMatch=Foo&fieldSelector=zzz%3D1", memory, 422),
		get("field label before token", "W-30", c1+"?fieldSelector=zzz%3D1&continue=x", upstream, 400),
		get("token before version", "W-30 W-82", c1+"?continue=x&resourceVersion=abc", memory, 400),
		get("router before options", "W-30 W-44", c1+"?limit=abc", upstream, 406).with("Accept", "application/xml"),
		get("version before stream format", "W-30", c1+"?watch=1&resourceVersion=abc", upstream, 500).with("Accept",
			"application/yaml"),
		get("timeout before everything", "W-30", "/api/v1/nonsense?timeout=abc", upstream, 400),
	})
}

// saying adds a body.
func (c scenario) saying(body string) scenario {
	c.Body = body
	return c
}
