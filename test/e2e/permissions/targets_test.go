package permissions

import (
	"net/http"
	"strings"

	"spillway/test/framework/exchange"
)

// target is one column of the matrix: a request that every user sends.
type target struct {
	exchange.Request
	// until an event like that a watch is read; nil: to its end.
	until func(exchange.Event) bool
	// more is left out of a short run.
	more bool
	// clocked: upstream itself answers it differently from one moment to the next (N-5), so that it is
	// repeated until both agree.
	clocked bool
}

func (t target) String() string {
	name := t.Method + " " + t.Target
	if a := t.Header["Accept"]; a != "" {
		name += " as " + a
	}
	return strings.TrimSpace(name)
}

func (t target) watches() bool {
	path, query, _ := strings.Cut(t.Target, "?")
	return strings.Contains(path, "/watch/") || strings.Contains("&"+query, "&watch=")
}

// collections are the paths of what is listed and watched. secrets and services are not mirrored.
var collections = []string{
	"/api/v1/namespaces/red/configmaps", "/api/v1/namespaces/blue/configmaps", "/api/v1/configmaps",
	"/api/v1/namespaces/red/pods", "/api/v1/pods", "/api/v1/namespaces/red/secrets", "/api/v1/nodes", "/api/v1/namespaces",
	"/apis/apps/v1/namespaces/red/deployments", "/apis/apps/v1/deployments",
	"/apis/" + gemGroup + "/v1/namespaces/red/gems", "/apis/" + gemGroup + "/v1/gems", "/api/v1/namespaces/green/services",
}

const (
	named     = "fieldSelector=metadata.name%3Da"
	unnamed   = "fieldSelector=metadata.name%21%3Da"
	labelled  = "labelSelector=team%3Da"
	watchList = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	second    = "watch=1&timeoutSeconds=1"
	table     = "application/json;as=Table;g=meta.k8s.io;v=v1"
	partial   = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	partials  = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	protobuf  = "application/vnd.kubernetes.protobuf"
)

func get(targets ...string) []target {
	var all []target
	for _, t := range targets {
		all = append(all, target{Request: exchange.Request{Method: http.MethodGet, Target: t}})
	}
	return all
}

func accepting(accept string, targets ...string) []target {
	all := get(targets...)
	for i := range all {
		all[i].Header = map[string]string{"Accept": accept}
		all[i].clocked = accept == table
	}
	return all
}

func send(method, path, contentType, body string) target {
	t := target{Request: exchange.Request{Method: method, Target: path, Body: body}}
	if contentType != "" {
		t.Header = map[string]string{"Content-Type": contentType}
	}
	return t
}

func more(all []target) []target {
	for i := range all {
		all[i].more = true
	}
	return all
}

// targets are all requests that every user sends.
func targets() []target {
	var all []target
	for i, path := range collections {
		lists := get(path, path+"?resourceVersion=0", path+"?resourceVersion=0&"+named, path+"?resourceVersion=0&"+labelled,
			path+"?"+second+"&resourceVersion=0")
		lists = append(lists, more(get(
			path+"?"+named, path+"?resourceVersion=0&"+unnamed, path+"?resourceVersion=0&limit=1", path+"?limit=abc", path+
				"?continue=abc",
			path+"?"+second+"&resourceVersion=0&"+named, path+"?"+second+"&"+labelled+"&resourceVersion=0", path+
				"?watch=1&limit=abc&"+named,
			path+"?"+second+"&resourceVersion=0&"+watchList,
		))...)
		if i >= 4 {
			more(lists[2:4])
		}
		all = append(all, lists...)
	}
	all = append(all, objects()...)
	all = append(all, oddities()...)
	all = append(all, formats()...)
	all = append(all, writes()...)
	return append(all, elsewhere()...)
}

// objects are named in the path or by a selector.
func objects() []target {
	const red, pods, deployments = "/api/v1/namespaces/red/configmaps", "/api/v1/namespaces/red/pods",
		"/apis/apps/v1/namespaces/red/deployments"
	all := get(
		red+"/a", red+"/a?resourceVersion=0", red+"/b?resourceVersion=0", red+"/missing?resourceVersion=0",
		"/api/v1/namespaces/blue/configmaps/a?resourceVersion=0",
		"/api/v1/namespaces/green/configmaps/g?resourceVersion=0", "/api/v1/namespaces/red/secrets/a", pods+
			"/a?resourceVersion=0",
		"/api/v1/nodes/n1?resourceVersion=0", "/api/v1/nodes/n2?resourceVersion=0",
		"/api/v1/namespaces/red?resourceVersion=0", "/api/v1/namespaces/blue?resourceVersion=0",
		deployments+"/a?resourceVersion=0", "/apis/"+gemGroup+"/v1/namespaces/red/gems/a?resourceVersion=0", "/apis/"+
			gemGroup+"/v1/namespaces/red/gems/b?resourceVersion=0",
		pods+"/a/status", pods+"/a/log", pods+"/a/exec?command=x", pods+"/a/proxy/", pods+"/a/unknown", deployments+
			"/a/scale", deployments+"/a/status",
		"/api/v1/namespaces/red/status", "/api/v1/nodes?resourceVersion=0&fieldSelector=metadata.name%3Dn1", "/api/v1/nodes?"+
			second+"&resourceVersion=0&fieldSelector=metadata.name%3Dn1",
	)
	return append(all, more(get(
		red+"/b", red+"/a/", red+"/a?resourceVersion=abc", red+"/a?resourceVersion=1",
		"/api/v1/namespaces/blue/configmaps/d?resourceVersion=0",
		"/api/v1/namespaces/green/configmaps?resourceVersion=0", "/api/v1/namespaces/green/configmaps?"+second+
			"&resourceVersion=0",
		red+"?resourceVersion=0&fieldSelector=metadata.name%3Db", red+
			"?resourceVersion=0&fieldSelector=metadata.name%3Da,metadata.namespace%3Dred",
		red+"?resourceVersion=0&fieldSelector=metadata.namespace%3Dblue", red+
			"?resourceVersion=0&fieldSelector=metadata.name%3Da,metadata.name%3Db",
		"/api/v1/configmaps?resourceVersion=0&fieldSelector=metadata.namespace%3Dred",
		"/api/v1/configmaps?resourceVersion=0&fieldSelector=metadata.name%3Da,metadata.namespace%3Dred",
		pods+"?resourceVersion=0&fieldSelector=spec.nodeName%3Dn1", pods+"?"+second+
			"&resourceVersion=0&fieldSelector=spec.nodeName%3Dn1",
		red+"?resourceVersion=0&labelSelector=team+in+(a,b)", red+"?resourceVersion=0&labelSelector=%21team", pods+
			"/a/attach", pods+"/a/portforward", pods+"/a/ephemeralcontainers",
	))...)
}

// oddities are malformed, or paths of old, or what there is none of.
func oddities() []target {
	const red = "/api/v1/namespaces/red/configmaps"
	all := get(
		red+"?timeout=abc", red+"?fieldSelector=x", red+"?labelSelector=a+b+c", red+"?resourceVersion=abc", red+"?"+second+
			"&resourceVersion=abc",
		red+"?fieldSelector=spec.none%3Da&resourceVersion=0", red+"?sendInitialEvents=true", red+
			"?watch=no&timeoutSeconds=1&resourceVersion=0",
		red+"?watch=1&timeoutSeconds=abc", "/api/v1/watch/namespaces/red/configmaps?timeoutSeconds=1",
		"/api/v1/watch/namespaces/red/configmaps/a?timeoutSeconds=1",
		"/api/v1/watch/configmaps?timeoutSeconds=1", "/api/v1/watch/nodes/n1?timeoutSeconds=1", "/api/v1/watch",
		"/api/v1/unknown", "/api/v1/namespaces/red/unknown/a",
		"/apis/unknown.example.com/v1/things", "/apis/"+gemGroup+"/v2/gems", "/apis/"+gemGroup+"/v1/unknown",
		"/apis/apps/v9/deployments",
		"/api/v1/namespaces/%3Cred%3E/configmaps?resourceVersion=0",
		"/api/v1/namespaces/red/configmaps/%61?resourceVersion=0",
	)
	return append(all, more(get(
		red+"?timeout=abc&watch=1&timeoutSeconds=1&resourceVersion=0", red+"?fieldSelector=a%3Db%3Dc", red+
			"?limit=99999999999999999999", red+"?resourceVersionMatch=Foo&resourceVersion=0",
		red+"?resourceVersion=0&fieldSelector=metadata.name%3D..", red+
			"?resourceVersion=0&fieldSelector=metadata.name%3Da%2Fb", red+"?resourceVersion=0&Watch=1",
		red+"?resourceVersion=0&watch=1&watch=0&timeoutSeconds=1", red+"?resourceVersion=0&fieldSelector=metadata.name%3Db&"+
			named, red+"?resourceVersion=0;"+named,
		red+"?resourceVersion=0&fieldSelector=metadata.name%3Da&labelSelector=%zz",
		"/api/v1/watch/namespaces/red/configmaps/a?fieldSelector=metadata.name%3Db",
		"/api/v1/proxy/namespaces/red/pods/a", "/api/v1/configmaps/a?resourceVersion=0",
		"/api/v1/namespaces/red/nodes?resourceVersion=0", "/api/v1/namespaces//configmaps?resourceVersion=0",
		"/api/v1/namespaces/red/../blue/configmaps?resourceVersion=0",
		"/api/v1/namespaces/red%2Fconfigmaps?resourceVersion=0", "//api/v1/configmaps?resourceVersion=0",
		"/api/v1/namespaces/red/configmaps/..", "/api//v1/configmaps", "/API/v1/configmaps",
	))...)
}

// formats are what an answer can look like.
func formats() []target {
	const red, pods = "/api/v1/namespaces/red/configmaps", "/api/v1/namespaces/red/pods"
	var all []target
	all = append(all, accepting(partials+", application/json", red+"?resourceVersion=0")...)
	all = append(all, accepting(partial, red+"/a?resourceVersion=0", red+"?"+second+"&resourceVersion=0")...)
	all = append(all, accepting(table, red+"?resourceVersion=0", pods+"/a")...)
	all = append(all, accepting(protobuf, red+"?resourceVersion=0", red+"/a?resourceVersion=0", red+"?"+second+
		"&resourceVersion=0", "/apis/"+gemGroup+"/v1/gems?resourceVersion=0")...)
	all = append(all, more(accepting("application/yaml", red+"?resourceVersion=0", red+"?"+second+
		"&resourceVersion=0"))...)
	all = append(all, more(accepting("application/cbor", red+"?resourceVersion=0"))...)
	all = append(all, more(accepting("text/html", red+"?resourceVersion=0"))...)
	all = append(all, more(accepting(protobuf+";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "/apis/"+gemGroup+
		"/v1/gems?resourceVersion=0"))...)
	zipped := get(red+"?"+second+"&resourceVersion=0&"+watchList, red+"?resourceVersion=0")
	for i := range zipped {
		zipped[i].Header = map[string]string{"Accept-Encoding": "gzip"}
	}
	all = append(all, zipped...)
	// From now: the state is proven, not any.
	proven := get(red+"?watch=1&timeoutSeconds=60&"+watchList, "/api/v1/nodes?watch=1&timeoutSeconds=60&"+watchList)
	for i := range proven {
		proven[i].until = func(e exchange.Event) bool { return e.End }
	}
	return append(all, proven...)
}

// writes change nothing even where they are allowed: there is something in the way, or nothing to
// change.
func writes() []target {
	const red, merge, object = "/api/v1/namespaces/red/configmaps", "application/merge-patch+json", "application/json"
	all := []target{
		send("POST", red, object, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`),
		send("PUT", red+"/a", object,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"red","resourceVersion":"1"}}`),
		send("PATCH", red+"/a", merge, `{}`),
		send("DELETE", red+"/a?dryRun=All", "", ""),
		send("DELETE", red+"?labelSelector=team%3Dnone", "", ""),
		send("PATCH", "/api/v1/namespaces/red/pods/a/status", merge, `{}`),
		send("PATCH", "/apis/apps/v1/namespaces/red/deployments/a/scale?dryRun=All", merge, `{}`),
		send("POST", "/api/v1/namespaces/red/pods/missing/eviction", object,
			`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"missing","namespace":"red"}}`),
		send("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", object,
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview",`+
				`"spec":{"resourceAttributes":{"verb":"get","resource":"pods","namespace":"red"}}}`),
	}
	all[len(all)-1].clocked = true // it says when it was made
	rest := []target{
		send("POST", red, object, `{`),
		send("POST", "/api/v1/namespaces/red/pods/a/exec?command=x", "", ""),
		send("PATCH", red+"/missing", merge, `{}`),
		send("DELETE", red+"/missing", "", ""),
		send("DELETE", red+"/b?dryRun=All", "", ""),
		send("DELETE", "/api/v1/configmaps", "", ""),
		send("POST", "/api/v1/namespaces/red/serviceaccounts/missing/token", object,
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`),
		send("POST", "/apis/authentication.k8s.io/v1/tokenreviews", object,
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{}}`),
		send("PUT", "/apis/apps/v1/namespaces/red/deployments/a/scale", object,
			`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"b","namespace":"red"}}`),
		send("HEAD", red, "", ""), send("HEAD", red+"/a", "", ""), send("OPTIONS", red, "", ""), send("BREW", red, "", ""),
		send("BREW", red+"/a", "", ""),
		send("POST", red+"?watch=1", object, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`),
		send("POST", "/api/v1/watch/namespaces/red/configmaps", "", ""),
	}
	return append(all, more(rest)...)
}

// elsewhere is what is no resource.
func elsewhere() []target {
	all := get("/version", "/healthz", "/livez/ping", "/foo", "/api", "/apis/apps/v1", "/apis/"+gemGroup+"/v1")
	return append(all, more(get("/apis", "/api/v1", "/livez", "/foo?a=%3Cb%3E", "/healthz/ping", "/debug/pprof/cmdline",
		"/openapi/v2/none"))...)
}
