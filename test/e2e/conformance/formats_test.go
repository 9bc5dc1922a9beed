package conformance

import "spillway/test/framework/exchange"

// The media types of the requests.
const (
	jsonType     = "application/json"
	yamlType     = "application/yaml"
	protobufType = "application/vnd.kubernetes.protobuf"
	asPartial    = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asPartials   = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	asTable      = ";as=Table;g=meta.k8s.io;v=v1"
)

// exact pins a list's resourceVersion, so that formats that are not taken apart here are equal to
// the byte.
const exact = "?resourceVersion=${last}&resourceVersionMatch=Exact"

// formats are requests with Accept and Accept-Encoding (W-40 to W-48, W-6).
func formats() []scenario {
	accept := func(name, rules, target, accept string, from exchange.Source, status int) scenario {
		return get(name, rules, target, from, status).with("Accept", accept)
	}
	all := []scenario{
		accept("json", "W-40 W-41", c1+exact, jsonType, memory, 0),
		accept("anything", "W-42", c1+exact, "*/*", memory, 0),
		accept("empty", "W-42", c1+exact, "", memory, 0),
		accept("json, then anything", "W-193", c1+exact, "application/json, */*", memory, 0),
		accept("json with a charset", "W-43", c1+exact, "application/json;charset=utf-8", memory, 0),
		accept("json with stream=watch", "W-43", c1+exact, "application/json;stream=watch", memory, 0),
		accept("json with another stream", "W-43", c1+exact, "application/json;stream=foo", upstream, 406),
		accept("json with an unknown parameter", "W-43", c1+exact, "application/json;foo=bar", memory, 0),
		accept("json pretty", "W-9 W-43", c1+exact, "application/json;pretty=1", upstream, 0),
		accept("yaml", "W-40 W-47", c1+exact, yamlType, upstream, 0),
		accept("yaml object now", "W-40", c1+"/a", yamlType, upstream, 0),
		accept("yaml object", "W-40", c1+"/a?resourceVersion=0", yamlType, upstream, 0),
		accept("yaml of nothing", "W-47", "/api/v1/namespaces/none/configmaps"+exact, yamlType, upstream, 0),
		accept("yaml custom", "W-40", someWidgets+exact, yamlType, upstream, 0),
		accept("yaml error", "W-10", c1+"/zz", yamlType, upstream, 404),
		accept("protobuf only", "W-40 W-41 W-133", c1+exact, protobufType, memory, 0),
		accept("protobuf object", "W-133", c1+"/a?resourceVersion=0", protobufType, memory, 0),
		accept("protobuf of nothing", "W-133", "/api/v1/namespaces/none/configmaps"+exact, protobufType, memory, 0),
		accept("protobuf error", "W-10 W-96", c1+"/zz", protobufType, upstream, 404),
		accept("protobuf, not there", "W-10 W-96", c1+"/zz?resourceVersion=0", protobufType, memory, 404),
		accept("yaml, not there", "W-10 W-96", c1+"/zz?resourceVersion=0", yamlType, upstream, 404),
		accept("for curl, not there", "W-9 W-96", c1+"/zz?resourceVersion=0", jsonType, upstream, 404).with("User-Agent",
			"curl/8.5.0"),
		accept("protobuf, refused", "W-10 W-26", c1+"?limit=abc", protobufType, memory, 400),
		accept("partial, refused", "W-10 W-26", c1+"?limit=abc", jsonType+asPartials, memory, 400),
		accept("protobuf of a definition, then json", "W-42 W-235", crds+"?resourceVersion=0", protobufType+
			",application/json", memory, 0),
		accept("protobuf of a definition", "W-133 W-235", crds+"?resourceVersion=0", protobufType, upstream, 0),
		accept("partial protobuf of a definition", "W-45 W-133", crds+"?resourceVersion=0", protobufType+asPartials, memory,
			0),
		accept("protobuf, then json", "W-42 W-193", c1+exact, protobufType+",application/json", memory, 0),
		accept("protobuf, then anything", "W-42 W-193", c1+"?resourceVersion=0", protobufType+", */*", memory, 0),
		accept("protobuf, then json, object", "W-42", c1+"/a?resourceVersion=0", protobufType+",application/json", memory, 0),
		accept("protobuf, then json, object now", "W-42", c1+"/a", protobufType+",application/json", upstream, 0),
		accept("protobuf, then json, not there", "W-42 W-96", c1+"/zz?resourceVersion=0", protobufType+",application/json",
			memory, 404),
		accept("protobuf custom", "W-40 W-44", someWidgets+exact, protobufType, upstream, 406),
		accept("protobuf custom, then json", "W-40", someWidgets+exact, protobufType+",application/json", memory, 0),
		accept("json before protobuf by q", "W-42", c1+exact, protobufType+";q=0.5,application/json", memory, 0),
		accept("yaml before json", "W-42", c1+exact, "application/yaml,application/json", upstream, 0),
		accept("json before yaml by q", "W-42", c1+exact, "application/yaml;q=0.1,application/json", memory, 0),
		accept("q=0 is no exclusion", "W-42", c1+exact, "application/json;q=0", memory, 0),
		accept("anything before yaml", "W-42", c1+exact, "*/*,application/yaml", upstream, 0),
		accept("upper case", "W-42 W-44", c1+exact, "APPLICATION/JSON", upstream, 406),
		accept("half a wildcard", "W-42 W-44", c1+exact, "application/*", upstream, 406),
		accept("half a wildcard, object", "W-44", c1+"/a?resourceVersion=0", "application/*", upstream, 406),
		accept("half a wildcard, custom", "W-42 W-257", someWidgets+exact, "application/*", memory, 0),
		accept("html", "W-42 W-44", c1+exact, "text/html", upstream, 406),
		accept("xml", "W-44 W-178 W-257", c1+exact, "application/xml", upstream, 406),
		accept("xml object", "W-44", c1+"/a?resourceVersion=0", "application/xml", upstream, 406),
		accept("garbage", "W-42 W-44", c1+exact, "garbage", upstream, 406),
		accept("garbage, then json", "W-42", c1+exact, "garbage,application/json", memory, 0),
		accept("cbor", "W-40", c1+exact, "application/cbor", upstream, 406),
		accept("cbor-seq", "W-43", c1+exact, "application/cbor-seq", upstream, 406),
		accept("unknown transform", "W-43 W-44", c1+"/a?resourceVersion=0", "application/json;as=Foo;g=meta.k8s.io;v=v1",
			upstream, 406),
		accept("transform without version", "W-43", c1+"/a?resourceVersion=0", "application/json;as=PartialObjectMetadata",
			upstream, 406),
		accept("partial list", "W-45", c1+exact, jsonType+asPartials, memory, 0),
		accept("partial list of nothing", "W-45", "/api/v1/namespaces/none/configmaps"+exact, jsonType+asPartials, memory, 0),
		accept("partial page", "W-45", c1+"?limit=1&resourceVersion=${last}", jsonType+asPartials, memory, 0),
		accept("partial list, v1beta1", "W-45", c1+exact,
			"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1", memory, 0),
		accept("partial object", "W-45", c1+"/a?resourceVersion=0", jsonType+asPartial, memory, 0),
		accept("partial object custom", "W-45", someWidgets+"/w1?resourceVersion=0", jsonType+asPartial, memory, 0),
		accept("partial protobuf", "W-40 W-133", c1+exact, protobufType+asPartials, memory, 0),
		accept("partial protobuf custom", "W-40", someWidgets+exact, protobufType+asPartials, memory, 0),
		accept("partial, as metadata clients ask", "W-193", c1+exact, protobufType+asPartials+","+jsonType+asPartials+
			",application/json", memory, 0),
		accept("list asked as single", "W-44", c1+exact, jsonType+asPartial, upstream, 406),
		accept("single asked as list", "W-44", c1+"/a?resourceVersion=0", jsonType+asPartials, upstream, 406),
		accept("partial not there", "W-10 W-96", c1+"/zz?resourceVersion=0", jsonType+asPartial, memory, 404),
		accept("table not there", "W-10 W-96", c1+"/zz?resourceVersion=0", jsonType+asTable, upstream, 404),
		accept("table in protobuf", "W-40", c1+exact, protobufType+asTable, upstream, 406),
		accept("table, bad includeObject", "W-46", c1+exact+"&includeObject=foo", jsonType+asTable, upstream, 400),
		accept("includeObject without table", "W-46", c1+exact+"&includeObject=foo", jsonType, memory, 0),
		accept("gzip of what is small", "W-6 W-255", c1+exact, jsonType, memory, 0).with("Accept-Encoding", "gzip"),
		accept("gzip", "W-6", heavy+exact, jsonType, memory, 0).with("Accept-Encoding", "gzip"),
		accept("gzip among others", "W-6", heavy+exact, jsonType, memory, 0).with("Accept-Encoding", "br, gzip"),
		accept("gzip with q", "W-6 W-255", heavy+exact, jsonType, memory, 0).with("Accept-Encoding", "gzip;q=1.0"),
		accept("GZIP", "W-6 W-255", heavy+exact, jsonType, memory, 0).with("Accept-Encoding", "GZIP"),
		accept("any coding", "W-6 W-255", heavy+exact, jsonType, memory, 0).with("Accept-Encoding", "*"),
		accept("no coding", "W-5 W-6", heavy+exact, jsonType, memory, 0),
		accept("gzip yaml", "W-6", heavy+exact, yamlType, upstream, 0).with("Accept-Encoding", "gzip"),
		accept("gzip protobuf", "W-6", heavy+exact, protobufType, memory, 0).with("Accept-Encoding", "gzip"),
		accept("gzip pretty", "W-6 W-9", heavy+exact+"&pretty=1", jsonType, upstream, 0).with("Accept-Encoding", "gzip"),
		accept("gzip and protobuf, as client-go asks", "W-6 W-193", heavy+"?resourceVersion=0", protobufType+", */*", memory,
			0).with("Accept-Encoding", "gzip"),
		get("audit id of one's own", "W-3", c1+exact, memory, 0).with("Audit-ID", "my-audit/1"),
		get("audit id of one's own, passed through", "W-3", c1+"/a", upstream, 0).with("Audit-ID", "my-audit/2"),
		get("audit id of one's own, refused", "W-3", c1+"?limit=abc", memory, 400).with("Audit-ID", "my-audit/3"),
		get("deprecated kind", "W-4", "/api/v1/namespaces/c1/endpoints"+exact, memory, 0),
		get("deprecated kind, object", "W-4", "/api/v1/namespaces/c1/endpoints/plain?resourceVersion=0", memory, 0),
		get("deprecated kind, passed through", "W-4", "/api/v1/namespaces/c1/endpoints/plain", upstream, 0),
		get("deprecated kind that is not mirrored", "W-4", "/api/v1/componentstatuses/none", upstream, 404),
		get("deprecated version of a custom resource", "W-4", betaWidgets+"/w1", upstream, 0),
	}
	for name, target := range map[string]string{"list": c1 + exact, "object": c1 + "/a?resourceVersion=0",
		"pods":   "/api/v1/namespaces/c1/pods" + exact,
		"custom": someWidgets + exact, "with objects": c1 + exact + "&includeObject=Object", "without objects": c1 + exact +
			"&includeObject=None",
		"of nothing": "/api/v1/namespaces/none/configmaps" + exact, "page": c1 + "?limit=1&resourceVersion=${last}"} {
		table := accept("table "+name, "W-46", target, jsonType+asTable+
			",application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", upstream, 0)
		table.clocked = true
		all = append(all, table)
	}
	return over("format", all)
}

// others are requests that are not about objects at all: they pass through (design D1).
func others() []scenario {
	openapi := get("openapi", "W-6", "/openapi/v3", upstream, 0)
	openapi.clocked = true // it says when it was put together last
	healthy := get("healthz", "W-3", "/healthz", upstream, 0)
	ready := get("readyz", "W-3", "/readyz", upstream, 0)
	healthy.clocked, ready.clocked = true, true // a check of etcd may be late
	return over("other", []scenario{
		openapi,
		get("version", "W-3", "/version", upstream, 0),
		healthy, ready,
		get("discovery", "W-3", "/apis", upstream, 0),
		get("aggregated discovery", "W-3", "/apis", upstream, 0).with("Accept",
			"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
		get("resources of a group", "W-3", "/apis/apps/v1", upstream, 0),
		get("core versions", "W-3", "/api", upstream, 0),
		get("core resources", "W-3", "/api/v1", upstream, 0),
		get("root", "W-3", "/", upstream, 0),
		get("nowhere", "W-172", "/nowhere", upstream, 404),
	})
}

const (
	heavy = "/api/v1/namespaces/heavy/configmaps"
	crds  = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)
