package conformance

import (
	"net/url"

	"spillway/test/framework/exchange"
)

// Paths that are requested often.
const (
	c1          = "/api/v1/namespaces/c1/configmaps"
	allMaps     = "/api/v1/configmaps"
	someWidgets = "/apis/conformance.example.com/v1/namespaces/c1/widgets"
	allWidgets  = "/apis/conformance.example.com/v1/widgets"
	betaWidgets = "/apis/conformance.example.com/v1beta1/namespaces/c1/widgets"
	deployments = "/apis/apps/v1/namespaces/c1/deployments"
)

// escape makes a query value.
func escape(text string) string { return url.QueryEscape(text) }

// lists are LISTs by the table of W-63.
func lists() []scenario {
	return over("list", versions(), pages(), everyResource(), selected(), escapedPaths(), listQueries())
}

func versions() []scenario {
	return over("version", []scenario{
		get("unset", "W-62 W-63 W-210", c1, either, 0),
		get("0", "W-5 W-8 W-60 W-62 W-63", c1+"?resourceVersion=0", memory, 0),
		get("0 all namespaces", "W-20 W-61", allMaps+"?resourceVersion=0", memory, 0),
		get("0 of a namespace that does not exist", "W-20 W-60", "/api/v1/namespaces/none/configmaps?resourceVersion=0",
			memory, 0),
		get("0 with a limit", "W-63", c1+"?resourceVersion=0&limit=1", memory, 0),
		get("0 NotOlderThan", "W-63", c1+"?resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=2", memory, 0),
		get("N", "W-62 W-63", c1+"?resourceVersion=${mid}", memory, 0),
		get("N long ago", "W-63 W-67", c1+"?resourceVersion=${old}", memory, 0),
		get("1", "W-63 W-67", c1+"?resourceVersion=1", memory, 0),
		get("N NotOlderThan", "W-63", c1+"?resourceVersion=${mid}&resourceVersionMatch=NotOlderThan", memory, 0),
		get("N Exact", "W-62 W-63 W-64", c1+"?resourceVersion=${mid}&resourceVersionMatch=Exact", memory, 0),
		get("N Exact all namespaces", "W-61 W-63 W-64", allMaps+"?resourceVersion=${mid}&resourceVersionMatch=Exact", memory,
			0),
		get("last Exact", "W-62 W-63 W-64", c1+"?resourceVersion=${last}&resourceVersionMatch=Exact", memory, 0),
		get("0 again, spelt 00", "W-27", c1+"?resourceVersion=00", memory, 0),
		get("leading zero", "W-27", c1+"?resourceVersion=0${mid}", memory, 0),
		get("of what is not there", "W-60", c1+"?resourceVersion=0&labelSelector=app%3Dnone", memory, 0),
		get("long ago Exact", "W-67 W-177", c1+"?resourceVersion=${old}&resourceVersionMatch=Exact", upstream, 410),
		get("long ago with a limit", "W-63 W-67", c1+"?resourceVersion=${old}&limit=1", upstream, 410),
		get("too large", "W-65 W-68 W-176 W-197", c1+"?resourceVersion=${future}", memory, 504),
		get("too large Exact", "W-68", c1+"?resourceVersion=${future}&resourceVersionMatch=Exact", memory, 504),
		get("too large with a limit", "W-68", c1+"?resourceVersion=${future}&limit=1", memory, 504),
		get("too large NotOlderThan", "W-68", c1+"?resourceVersion=${future}&resourceVersionMatch=NotOlderThan", memory, 504),
		get("too large custom", "W-68", someWidgets+"?resourceVersion=${future}", memory, 504),
	})
}

func pages() []scenario {
	return over("page", []scenario{
		get("first of most recent", "W-63 W-69 W-70 W-80", c1+"?limit=1", either, 0),
		get("first at N", "W-63 W-64 W-69 W-70 W-80", c1+"?limit=1&resourceVersion=${last}", memory, 0),
		get("first at an older N", "W-63 W-64 W-70", c1+"?limit=2&resourceVersion=${mid}", memory, 0),
		get("first Exact", "W-63 W-69", c1+"?limit=1&resourceVersion=${last}&resourceVersionMatch=Exact", memory, 0),
		get("first NotOlderThan", "W-63 W-69", c1+"?limit=1&resourceVersion=${mid}&resourceVersionMatch=NotOlderThan", memory,
			0),
		get("of all namespaces", "W-61 W-80", allMaps+"?limit=3&resourceVersion=${last}", memory, 0),
		get("as large as the rest", "W-69", c1+"?limit=3&resourceVersion=${last}", memory, 0),
		get("larger than the rest", "W-69", c1+"?limit=100&resourceVersion=${last}", memory, 0),
		get("with matches, and keys after them", "W-69 W-70", c1+"?limit=2&resourceVersion=${last}&labelSelector=app%3Dx",
			memory, 0),
		get("with fewer matches", "W-69 W-70", c1+"?limit=3&resourceVersion=${last}&labelSelector=app%3Dx", memory, 0),
		get("of one name", "W-35 W-69", c1+"?limit=1&resourceVersion=${last}&fieldSelector=metadata.name%3Da", memory, 0),
		get("of one name across namespaces", "W-35 W-69",
			allMaps+"?limit=1&resourceVersion=${last}&fieldSelector=metadata.name%3Da", memory, 0),
		get("next", "W-63 W-64 W-80 W-81", c1+"?limit=1&continue=${token-last}", memory, 0),
		get("rest", "W-63 W-81", c1+"?continue=${token-last}", memory, 0),
		get("rest at an older N", "W-64 W-81", c1+"?continue=${token-mid}", memory, 0),
		get("next with version 0", "W-63", c1+"?limit=1&continue=${token-last}&resourceVersion=0", memory, 0),
		get("rest with version 0", "W-63", c1+"?continue=${token-last}&resourceVersion=0", memory, 0),
		get("next with another selector", "W-81", c1+"?continue=${token-last}&labelSelector=app%3Dy", memory, 0),
		get("next of another resource", "W-81", "/api/v1/namespaces/c1/secrets?continue=${token-last}", memory, 0),
		get("from a start without NUL", "W-81", c1+"?continue="+exchange.EncodeToken(-1, "b"), either, 0),
		get("from the beginning", "W-81", c1+"?continue="+exchange.EncodeToken(-1, "/"), either, 0),
		get("inconsistent", "W-63 W-83", c1+"?limit=1&continue=${token-any}", either, 0),
		get("of a version long ago", "W-83 W-177", c1+"?limit=1&continue=${token-old}", upstream, 410),
		get("of a version to come", "W-68", c1+"?limit=1&continue=${token-future}", memory, 504),
		get("custom", "W-60 W-70 W-80", someWidgets+"?limit=1&resourceVersion=${last-widgets}", memory, 0),
		get("custom rest", "W-60", someWidgets+"?resourceVersion=${last-widgets}&resourceVersionMatch=Exact", memory, 0),
		get("of nodes", "W-80", "/api/v1/nodes?limit=1&resourceVersion=${last-nodes}", memory, 0),
		get("of namespaces", "W-80", "/api/v1/namespaces?limit=3&resourceVersion=${last-namespaces}", memory, 0),
		get("of secrets", "W-80", "/api/v1/secrets?limit=1&resourceVersion=${last-secrets}", memory, 0),
		get("of one name Exact", "W-35",
			c1+"?resourceVersion=${first}&resourceVersionMatch=Exact&fieldSelector=metadata.name%3Db", memory, 0),
		get("of one name Exact with a limit", "W-35",
			c1+"?limit=1&resourceVersion=${first}&resourceVersionMatch=Exact&fieldSelector=metadata.name%3Db", memory, 0),
		get("of one name that changed since", "W-35 W-63",
			c1+"?limit=1&resourceVersion=${first}&fieldSelector=metadata.name%3Db", memory, 0),
		get("of one name NotOlderThan", "W-35",
			c1+"?limit=1&resourceVersion=${first}&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Db", memory, 0),
		get("of one node", "W-35", "/api/v1/nodes?limit=1&resourceVersion=${last}&fieldSelector=metadata.name%3Dn1", memory,
			0),
		get("limit 0", "W-26", c1+"?limit=0&resourceVersion=${mid}", memory, 0),
		get("limit below 0", "W-26", c1+"?limit=-1&resourceVersion=${mid}", memory, 0),
	})
}

// everyResource requests of each mirrored resource what of it is mirrored, and what is not.
func everyResource() []scenario {
	var all []scenario
	for name, path := range collections {
		all = append(all,
			get(name+"/0", "W-60 W-234", path+"?resourceVersion=0", memory, 0),
			get(name+"/exact", "W-60 W-64", path+"?resourceVersion=${last}&resourceVersionMatch=Exact", memory, 0),
			get(name+"/unset", "W-63 W-210", path, either, 0),
			get(name+"/slash", "W-21", path+"/?resourceVersion=0", memory, 0),
		)
	}
	return append(all,
		get("beta widgets", "W-4 W-234", betaWidgets+"?resourceVersion=0", upstream, 0),
		get("never mirrored", "W-60", "/api/v1/namespaces/c1/events?resourceVersion=0", upstream, 0),
		get("not mirrored", "W-60", "/apis/coordination.k8s.io/v1/namespaces/c1/leases?resourceVersion=0", upstream, 0),
	)
}

// selected are lists by labels and fields (W-150 to W-153).
func selected() []scenario {
	var all []scenario
	for _, text := range []string{
		"app=x", "app==x", "app!=x", "app in (x,y)", "app notin (x)", "app", "!app", "app in ()", "app notin ()", " ",
		"app=x,app!=y",
		"nothing>1", "app\t=\nx", "kubernetes.io/metadata.name",
	} {
		all = append(all, get("label "+text, "W-150", c1+"?resourceVersion=0&labelSelector="+escape(text), memory, 0))
	}
	for _, f := range []struct{ path, text string }{
		{c1, "metadata.name=a"}, {c1, "metadata.name==a"}, {c1, "metadata.name!=a"}, {c1, "metadata.name=a,metadata.name=b"},
		{c1, ",,,"}, {c1, "metadata.name=none"}, {c1, "metadata.namespace=c2"}, {c1, `metadata.name=a\,b`},
		{allMaps, "metadata.name=a"}, {allMaps, "metadata.namespace=c2"},
		{allMaps, "metadata.namespace!=c2,metadata.name!=a"},
		{"/api/v1/pods", "spec.nodeName=n1"}, {"/api/v1/pods", "spec.host=n1"}, {"/api/v1/pods", "spec.nodeName="},
		{"/api/v1/pods", "spec.nodeName!="},
		{"/api/v1/pods", "status.phase=Pending"}, {"/api/v1/pods", "status.phase!=Succeeded,status.phase!=Failed"},
		{"/api/v1/pods", "spec.restartPolicy=Always"}, {"/api/v1/pods", "spec.schedulerName=default-scheduler"},
		{"/api/v1/pods", "spec.serviceAccountName="}, {"/api/v1/pods", "spec.hostNetwork=false"},
		{"/api/v1/pods", "spec.hostNetwork=true"},
		{"/api/v1/pods", "status.podIP="}, {"/api/v1/pods", "status.podIPs=1.2.3.4"},
		{"/api/v1/pods", "status.podIPs!=1.2.3.4"},
		{"/api/v1/pods", "status.nominatedNodeName="},
		{"/api/v1/nodes", "spec.unschedulable=true"}, {"/api/v1/nodes", "spec.unschedulable=false"},
		{"/api/v1/nodes", "metadata.name=n1"},
		{"/api/v1/namespaces", "status.phase=Active"}, {"/api/v1/namespaces", "metadata.name=c1"},
		{"/api/v1/secrets", "type=Opaque"}, {"/api/v1/secrets", "type!=Opaque"},
		{"/api/v1/services", "spec.clusterIP=None"}, {"/api/v1/services", "spec.clusterIP!=None"},
		{"/api/v1/services", "spec.type=ClusterIP"},
		{deployments, "metadata.name=d1"}, {"/apis/apps/v1/deployments", "metadata.namespace=c1"},
		{someWidgets, "spec.color=red"}, {someWidgets, "spec.color="}, {someWidgets, "spec.color!=red"},
		{someWidgets, "spec.size=3"},
		{someWidgets, "spec.on="}, {allWidgets, "metadata.namespace=c1,metadata.name=w1"}, {someWidgets, "metadata.name=w2"},
	} {
		all = append(all, get("field "+f.path+" "+f.text, "W-35 W-151 W-152 W-153",
			f.path+"?resourceVersion=0&fieldSelector="+escape(f.text), memory, 0))
	}
	return append(all,
		get("both", "W-150 W-151", c1+"?resourceVersion=0&labelSelector=app%3Dx&fieldSelector=metadata.name%21%3Da", memory,
			0))
}

// escapedPaths are paths that a careless server would repair (W-21).
func escapedPaths() []scenario {
	const rv = "?resourceVersion=0"
	return over("path", []scenario{
		get("escaped letter", "W-21", "/api/v1/namespaces/c1/%63onfigmaps"+rv, memory, 0),
		get("escaped namespace", "W-21", "/api/v1/namespaces/%631/configmaps"+rv, memory, 0),
		get("empty namespace", "W-20", "/api/v1/namespaces//configmaps"+rv, memory, 0),
		get("slash at the end", "W-21", c1+"/"+rv, memory, 0),
		get("two slashes at the end", "W-21", c1+"//"+rv, upstream, 0),
		get("two slashes at the beginning", "W-21 W-172 W-250", "/"+c1+rv, upstream, 404),
		get("two slashes inside", "W-21 W-172", "/api/v1//namespaces/c1/configmaps"+rv, upstream, 404),
		get("escaped slash", "W-21 W-250", "/api/v1/namespaces/c1%2Fconfigmaps"+rv, memory, 0),
		get("escaped slash in a name", "W-21", c1+"/a%2Fb"+rv, upstream, 404),
		get("dots", "W-21 W-250", "/api/v1/namespaces/c1/../c2/configmaps"+rv, upstream, 404),
		get("dots as a name", "W-21", c1+"/.."+rv, upstream, 400),
		get("escaped dots as a name", "W-21", c1+"/%2E%2E"+rv, upstream, 400),
		get("one dot as a name", "W-21", c1+"/."+rv, upstream, 400),
		get("bad escape", "W-21", c1+"%zz"+rv, upstream, 400),
		get("other case", "W-21", "/api/v1/namespaces/c1/ConfigMaps"+rv, upstream, 404),
		get("group in the wrong case", "W-21 W-172", "/apis/Apps/v1/namespaces/c1/deployments"+rv, upstream, 404),
		get("namespaced resource without namespace", "W-20 W-172", "/api/v1/configmaps/a"+rv, upstream, 404),
		get("cluster-scoped resource with namespace", "W-20 W-172", "/api/v1/namespaces/c1/nodes"+rv, upstream, 404),
		get("unknown resource", "W-172", "/api/v1/nonsense"+rv, upstream, 404),
		get("unknown version", "W-172", "/api/v2/configmaps"+rv, upstream, 404),
		get("unknown group", "W-172", "/apis/foo.example/v1/foos"+rv, upstream, 404),
		get("unknown resource in a custom group", "W-172", "/apis/conformance.example.com/v1/nonsense"+rv, upstream, 404),
		get("unknown subresource", "W-97 W-172", c1+"/a/nonsense"+rv, upstream, 404),
		get("core under apis", "W-172", "/apis//v1/configmaps"+rv, upstream, 404),
	})
}

// listQueries are queries that a careless server would read differently (W-24 to W-26).
func listQueries() []scenario {
	const rv = "?resourceVersion=0&"
	return over("query", []scenario{
		get("twice, the first counts", "W-24", c1+"?resourceVersion=0&resourceVersion=abc", memory, 0),
		get("bad escape", "W-24 W-250", c1+rv+"labelSelector=%zz", memory, 0),
		get("semicolon", "W-24 W-250", c1+rv+"a;b=1", memory, 0),
		get("semicolon in a value", "W-24", c1+rv+"labelSelector=app%3Dy;x", memory, 0),
		get("plus is a space", "W-24 W-150", c1+rv+"labelSelector=app+in+(x)", memory, 0),
		get("other case", "W-24", c1+rv+"Watch=1&LABELSELECTOR=app%3Dy", memory, 0),
		get("unknown", "W-24", c1+rv+"foo=1&dryRun=All&export=true&includeUninitialized=1", memory, 0),
		get("empty strings", "W-24", c1+rv+"continue=&fieldSelector=&labelSelector=&resourceVersionMatch=", memory, 0),
		get("watch=false", "W-25", c1+rv+"watch=false", memory, 0),
		get("watch=0", "W-25", c1+rv+"watch=0", memory, 0),
		get("watch=FALSE", "W-25", c1+rv+"watch=FALSE", memory, 0),
		get("bookmarks on a list", "W-25", c1+rv+"allowWatchBookmarks=true", memory, 0),
		get("timeoutSeconds on a list", "W-26", c1+rv+"timeoutSeconds=1", memory, 0),
		get("negative timeoutSeconds on a list", "W-26", c1+rv+"timeoutSeconds=-1", memory, 0),
		get("timeout", "W-28", c1+rv+"timeout=10s", memory, 0),
		get("timeout 0s", "W-28", c1+rv+"timeout=0s", memory, 0),
		get("timeout too large", "W-28", c1+rv+"timeout=1000h", memory, 0),
		get("shards that are switched off", "W-240", c1+rv+"shardSelector=nonsense", upstream, 0),
		get("pretty", "W-9", c1+rv+"pretty=true", upstream, 0),
		get("pretty=t", "W-9", c1+rv+"pretty=t", upstream, 0),
		get("pretty=yes", "W-9", c1+rv+"pretty=yes", memory, 0),
		get("pretty for curl", "W-9", c1+rv, upstream, 0).with("User-Agent", "curl/8.5.0"),
		get("pretty for Wget", "W-9", c1+rv, upstream, 0).with("User-Agent", "Wget/1.21"),
		get("pretty for a browser", "W-9", c1+rv, upstream, 0).with("User-Agent", "Mozilla/5.0 (X11)"),
		get("not pretty for curl", "W-9", c1+rv+"pretty=false", memory, 0).with("User-Agent", "curl/8.5.0"),
		get("pretty custom", "W-9", someWidgets+rv+"pretty=1", upstream, 0),
	})
}
