package conformance

import (
	"slices"
	"testing"

	"spillway/test/framework/exchange"
)

// testPlanner requests what depends on how a path is spelt, a number written, or a token made.
func (s *suite) testPlanner(t *testing.T) {
	mid := int64(exchange.Number(s.marks["mid"]))
	for name, start := range map[string]string{"bare": "a\x00", "inclusive": "/a", "root": "/", "end": "/zzz\x00"} {
		s.marks["token-"+name] = exchange.EncodeToken(mid, start)
	}
	s.runAll(t, s.plain, slices.Concat(spelledPaths(), spelledVersions(), madeTokens(), singleKeys(), waits()))
}

// spelledPaths are the same few collections and objects, spelt differently (W-20, W-21, W-33).
func spelledPaths() []scenario {
	const rv = "?resourceVersion=0"
	return over("path", []scenario{
		get("object with a slash at the end", "W-21", c1+"/a/"+rv, memory, 0),
		get("cluster-scoped object with a slash at the end", "W-21", "/api/v1/nodes/n1/"+rv, memory, 0),
		get("custom with a slash at the end", "W-21", someWidgets+"/"+rv, memory, 0),
		get("custom object with a slash at the end", "W-21", someWidgets+"/w1/"+rv, memory, 0),
		get("escaped slash at the end", "W-21", c1+"%2F"+rv, memory, 0),
		get("escaped slashes throughout", "W-21", "/api%2Fv1%2Fnamespaces%2Fc1%2Fconfigmaps"+rv, memory, 0),
		get("escaped slash in front of a name", "W-21", c1+"%2Fa"+rv, memory, 0),
		get("custom without a namespace in its segment", "W-20", "/apis/conformance.example.com/v1/namespaces//widgets"+rv,
			memory, 0),
		get("object without a namespace in its segment", "W-20", "/api/v1/namespaces//configmaps/a"+rv, upstream, anyStatus),
		get("cluster-scoped without a namespace in its segment", "W-20", "/api/v1/namespaces//nodes"+rv, upstream, anyStatus),
		get("watch without a namespace in its segment", "W-20", "/api/v1/namespaces//configmaps"+rv+
			"&watch=1&timeoutSeconds=1", memory, 0),
		get("percent sign in a name", "W-21", c1+"/a%2561"+rv, upstream, anyStatus),
		get("deprecated watch of everything", "W-33", "/api/v1/watch/configmaps"+rv+"&timeoutSeconds=1", memory, 0),
		get("deprecated watch without a namespace in its segment", "W-33", "/api/v1/watch/namespaces//configmaps"+rv+
			"&timeoutSeconds=1", memory, 0),
		get("deprecated watch with a slash at the end", "W-33", "/api/v1/watch/namespaces/c1/configmaps/"+rv+
			"&timeoutSeconds=1", memory, 0),
		get("deprecated watch of namespaces", "W-33", "/api/v1/watch/namespaces"+rv+"&timeoutSeconds=1", memory, 0),
		get("deprecated watch of a namespace", "W-33", "/api/v1/watch/namespaces/c1"+rv+"&timeoutSeconds=1", memory, 0),
		get("deprecated watch of a node", "W-33", "/api/v1/watch/nodes/n1"+rv+"&timeoutSeconds=1", memory, 0),
		get("deprecated watch of a custom resource", "W-33",
			"/apis/conformance.example.com/v1/watch/namespaces/c1/widgets"+rv+"&timeoutSeconds=1", memory, 0),
		get("deprecated watch of a custom object", "W-33",
			"/apis/conformance.example.com/v1/watch/namespaces/c1/widgets/w1"+rv+"&timeoutSeconds=1", memory, 0),
		get("deprecated watch that is one by its options", "W-33",
			"/api/v1/watch/namespaces/c1/configmaps?watch=1&timeoutSeconds=7"+marked, memory, 0),
		get("deprecated watch of a version, with a match", "W-33",
			"/api/v1/watch/namespaces/c1/configmaps?resourceVersion=${first}&resourceVersionMatch=Exact&timeoutSeconds=1",
			memory, 0),
		get("deprecated watch with a token", "W-33",
			"/api/v1/watch/namespaces/c1/configmaps?resourceVersion=${first}&continue=x&timeoutSeconds=1", memory, 0),
		get("deprecated watch of a name and a selector", "W-33",
			"/api/v1/watch/namespaces/c1/configmaps/a?fieldSelector=metadata.name%3Da,metadata.namespace%3Dc1&timeoutSeconds=1",
			memory, 0),
		get("deprecated watch of a name and labels", "W-33",
			"/api/v1/watch/namespaces/c1/configmaps/a?labelSelector=app%3Dnone&timeoutSeconds=1", memory, 0),
		get("deprecated watch of a name without a namespace", "W-33", "/api/v1/watch/configmaps/a?timeoutSeconds=1", upstream,
			404),
		get("deprecated watch of a subresource", "W-33", "/api/v1/watch/namespaces/c1/status?timeoutSeconds=1", upstream,
			anyStatus),
		get("deprecated watch, malformed version", "W-33", "/api/v1/watch/namespaces/c1/configmaps?resourceVersion=abc",
			memory, 500),
		get("deprecated watch, Exact at 0", "W-33",
			"/api/v1/watch/namespaces/c1/configmaps?resourceVersion=0&resourceVersionMatch=Exact", memory, 422),
	})
}

// spelledVersions are resourceVersions with zeros in front of them (W-27): "00" is zero, and not
// "0".
func spelledVersions() []scenario {
	const w = c1 + "?watch=1&timeoutSeconds=1&resourceVersion="
	return over("version", []scenario{
		get("00 and a limit", "W-27 W-63", c1+"?resourceVersion=00&limit=1", upstream, 0),
		get("00 Exact", "W-27 W-31", c1+"?resourceVersion=00&resourceVersionMatch=Exact", either, 0),
		get("00 NotOlderThan and a limit", "W-27 W-63", c1+"?resourceVersion=00&resourceVersionMatch=NotOlderThan&limit=1",
			memory, 0),
		get("00 and a token", "W-27 W-63", c1+"?resourceVersion=00&continue=${token-last}", memory, 400),
		get("zeros in front of an exact one", "W-27 W-63", c1+"?resourceVersion=000${mid}&limit=1", memory, 0),
		get("zeros in front of one that is too large", "W-27 W-68", c1+"?resourceVersion=0${future}", memory, 504),
		get("object at 00", "W-27 W-95", c1+"/a?resourceVersion=00", memory, 0),
		get("object with zeros before", "W-27 W-95", c1+"/a?resourceVersion=00${mid}", memory, 0),
		get("watch from 00", "W-27 W-100", w+"00", memory, 0),
		get("watch from 00, bookmarks", "W-27 W-101", w+"00"+marked, memory, 0),
		get("watch from 00, initial", "W-27 W-100", w+"00"+informer, memory, 0),
		get("watch from 00, no state", "W-27 W-100", w+"00"+noState, memory, 0),
		get("watch with zeros before", "W-27 W-100", w+"00${mid}", memory, 0),
		get("watch from the largest there is", "W-27 W-106", w+"18446744073709551615", memory, 0),
		get("list from the largest there is", "W-27 W-68", c1+"?resourceVersion=18446744073709551615", memory, 504),
		get("negative limit of an exact version", "W-26", c1+"?resourceVersion=${mid}&resourceVersionMatch=Exact&limit=-2",
			memory, 0),
		get("negative limit of a version", "W-26 W-63", c1+"?resourceVersion=${mid}&limit=-2", memory, 0),
		get("a limit that overflows into nothing", "W-26", c1+"?resourceVersion=${mid}&limit=-9223372036854775808", memory,
			0),
		get("seconds that overflow a duration", "W-29", w+"${last}&timeoutSeconds=5", memory, 0),
		get("seconds that overflow", "W-29", c1+"?watch=1&resourceVersion=${last}&timeoutSeconds=9223372036854775807", memory,
			0).telling(),
		get("negative seconds from the present", "W-29", c1+"?watch=1&resourceVersion=${last}&timeoutSeconds=-1", memory,
			0).telling(),
		get("negative seconds and a malformed version", "W-29", c1+"?watch=1&resourceVersion=abc&timeoutSeconds=-1", memory,
			500),
	})
}

// madeTokens are continue tokens that a client may make of one it was given (W-80 to W-83).
func madeTokens() []scenario {
	page := func(name, token string, from exchange.Source, status int) scenario {
		return get(name, "W-80 W-81 W-82", c1+"?limit=2&continue="+token, from, status)
	}
	return over("token", []scenario{
		page("without the slash", "${token-bare}", memory, 0),
		page("without NUL", "${token-inclusive}", memory, 0),
		page("from the beginning", "${token-root}", memory, 0),
		page("past the end", "${token-end}", memory, 0),
		page("most recent", "${token-any}", either, 0),
		get("most recent at version 0", "W-63 W-83", c1+"?resourceVersion=0&limit=1&continue=${token-any}", either, 0),
		get("with a selector", "W-69 W-81", c1+"?limit=1&labelSelector=app%3Dx&continue=${token-root}", memory, 0),
		get("with a name", "W-35 W-69 W-81", c1+"?limit=1&fieldSelector=metadata.name%3Da&continue=${token-root}", memory, 0),
		get("with a name and its namespace", "W-35 W-69 W-81",
			allMaps+"?limit=1&fieldSelector=metadata.name%3Da,metadata.namespace%3Dc1&continue=${token-root}", memory, 0),
		page("of other types", "eyJ2IjoxfQ", upstream, 400),
		page("an array", "W10", upstream, 400),
		page("null", "bnVsbA", memory, 400),
		page("with more after it", "e30geA", memory, 400),
		page("empty object", "e30", memory, 400),
	})
}

// singleKeys are lists that can find one key at most, where a limit means nothing (W-35, W-63,
// W-69).
func singleKeys() []scenario {
	const one = "&fieldSelector=metadata.name%3Da"
	const onlyC1 = one + ",metadata.namespace%3Dc1"
	return over("one key", []scenario{
		get("legacy", "W-63 W-69", c1+"?resourceVersion=${mid}&limit=1"+one, memory, 0),
		get("by its namespace too", "W-63 W-69", allMaps+"?resourceVersion=${mid}&limit=1"+onlyC1, memory, 0),
		get("exact", "W-63 W-69", c1+"?resourceVersion=${mid}&resourceVersionMatch=Exact&limit=1"+one, memory, 0),
		get("exact, by its namespace too", "W-63 W-69", allMaps+"?resourceVersion=${mid}&resourceVersionMatch=Exact&limit=1"+
			onlyC1, memory, 0),
		get("too large", "W-68", c1+"?resourceVersion=${future}"+one, memory, 504),
		get("too large with a limit", "W-68", c1+"?resourceVersion=${future}&limit=1"+one, upstream, 504),
		get("too large Exact", "W-68", c1+"?resourceVersion=${future}&resourceVersionMatch=Exact"+one, upstream, 504),
		get("in a namespace that cannot be", "W-69",
			allMaps+"?resourceVersion=${mid}&limit=1&fieldSelector=metadata.name%3Da,metadata.namespace%3DC_1", memory, 0),
		get("with a name that cannot be", "W-69", c1+"?resourceVersion=${mid}&limit=1&fieldSelector=metadata.name%3D..",
			memory, 0),
		get("without a name", "W-35", c1+"?resourceVersion=${mid}&limit=1&fieldSelector=metadata.name%3D", memory, 0),
		get("pods of a node", "W-69",
			"/api/v1/pods?resourceVersion=${last-pods}&resourceVersionMatch=NotOlderThan&limit=1"+
				"&fieldSelector=spec.nodeName%3Dn1", memory, 0),
		get("pods of a node, exact", "W-69",
			"/api/v1/pods?resourceVersion=${last-pods}&limit=1&fieldSelector=spec.nodeName%3Dn1", memory, 0),
		get("pods of a host", "W-69",
			"/api/v1/pods?resourceVersion=${last-pods}&resourceVersionMatch=NotOlderThan&limit=1&fieldSelector=spec.host%3Dn1",
			memory, 0),
	})
}

// waits are reads of what is not there yet, with some time to wait for it (W-28, W-65, W-68).
func waits() []scenario {
	return over("wait", []scenario{
		get("in a hurry", "W-28 W-65", c1+"?resourceVersion=${future}&timeout=1s", upstream, 504),
		get("in less of a hurry", "W-28 W-65 W-68", c1+"?resourceVersion=${future}&timeout=10s", memory, 504),
		get("for an object in a hurry", "W-28 W-95", c1+"/a?resourceVersion=${future}&timeout=1s", upstream, 504),
		get("of a custom resource", "W-68", someWidgets+"/w1?resourceVersion=${future}", memory, 504),
	})
}
