package fuzzdiff

import (
	"maps"
	"slices"
	"strings"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// queryNoise adds what clients send for reasons of their own, or by mistake (W-24 to W-28).
func (g *generator) queryNoise() {
	if g.sober {
		return
	}
	add := func(raw string) { g.ask.params = append(g.ask.params, raw) }
	if g.percent(4) {
		add(one(g, "foo=1", "dryRun=All", "export=true", "export=1", "includeUninitialized=1", "fieldManager=x", "x", "=", "",
			"&", "shardSelector=x", "includeObject=None",
			"includeObject=foo", "fieldValidation=Strict", "ResourceVersion=abc", "Limit=1", "WATCH=1"))
	}
	if g.percent(4) {
		add("pretty=" + one(g, "true", "1", "t", "false", "0", "yes", "", "TRUE"))
	}
	if g.percent(3) {
		add("timeout=" + one(g, "10s", "1m", "0s", "-1s", "5", "abc", "", "1000h", "1h30m", "9999999999999h", ".5m"))
	}
	if g.percent(2) {
		g.param("timeoutSeconds", one(g, "1", "2", "abc", "", "-1", "1.5", "9223372036854775808"))
	}
	if g.percent(2) {
		g.param("allowWatchBookmarks", one(g, "true", "false", "", "maybe"))
	}
	if g.percent(1) {
		g.param("sendInitialEvents", one(g, "true", "false", ""))
	}
	if g.percent(2) {
		g.param("watch", one(g, "false", "0", "FALSE", "False"))
	}
	if g.percent(5) && len(g.ask.params) > 0 {
		g.repeat()
	}
	if g.percent(3) {
		add(one(g, "labelSelector=%zz", "limit=%", "fieldSelector=%4", "resourceVersion=0%", "%zz=1", "continue=%%",
			"watch=%g1"))
	}
	if g.percent(3) {
		add(one(g, "a;b=1", "limit=1;resourceVersion=0", "labelSelector=app%3Dx;", ";", "watch=1;timeoutSeconds=1"))
	}
	if g.percent(1) {
		add(one(g, "limit=1#fragment", "labelSelector=app%3Dx%00", "fieldSelector=metadata.name=a",
			"resourceVersion=0?limit=1", "a=b=c"))
	}
}

// repeat gives a parameter a second value.
func (g *generator) repeat() {
	name, _, _ := strings.Cut(one(g, g.ask.params...), "=")
	switch name {
	case "resourceVersion":
		g.param(name, g.version())
	case "limit":
		g.param(name, g.limit())
	case "resourceVersionMatch":
		g.param(name, g.match())
	case "timeoutSeconds":
		g.param(name, one(g, "1", "2", "abc"))
	case "continue":
		g.param(name, g.token())
	default:
		g.ask.params = append(g.ask.params, name+one(g, "", "=", "=1", "=app", "=false"))
	}
}

// headers adds what decides about the format, and little else (W-40 to W-45, W-6, W-9).
func (g *generator) headers() {
	add := func(name, value string) { g.ask.header = append(g.ask.header, field{name, value}) }
	if g.percent(60) {
		add("Accept", g.accept())
	}
	if g.percent(30) {
		add("Accept-Encoding", one(g, "gzip", "gzip", "gzip", "gzip", "br, gzip", "gzip;q=1.0", "GZIP", "*", "identity",
			"deflate, gzip , br", ""))
	}
	if g.odd(6) {
		add("User-Agent", one(g, "curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11)", "kubectl/v1.37.1", ""))
	}
	if g.odd(2) {
		add("Audit-ID", one(g, "my-own", strings.Repeat("a", 200), "ünicode"))
	}
	if g.odd(2) {
		add("Authorization", one(g, g.state.Credentials...))
	}
	if g.odd(2) {
		add(one(g, "Cache-Control", "If-None-Match", "Range", "X-Foo", "Accept-Language", "Content-Type", "Expect-Nothing"),
			one(g, "no-cache", "*", "bytes=0-10", "text/html"))
	}
}

const (
	asJSON     = "application/json"
	asYAML     = "application/yaml"
	asProtobuf = "application/vnd.kubernetes.protobuf"
)

func (g *generator) accept() string {
	if g.sober {
		return g.soberAccept()
	}
	var text string
	g.weighted(
		choice{30, func() { text = asJSON }},
		choice{10, func() { text = one(g, "*/*", "application/json, */*", "") }},
		choice{22, func() { text = asProtobuf + one(g, ",application/json", ", */*", ",application/json", "") }},
		choice{4, func() { text = one(g, asYAML, asYAML+",application/json", asJSON+","+asYAML) }},
		choice{12, func() { text = g.transformed() }},
		choice{5, func() { text = g.qualified() }},
		choice{5, func() {
			text = one(g, "application/*", "APPLICATION/JSON", "text/html", "garbage", "application/xml", "application/cbor",
				"application/cbor-seq", ",", ";", "*", "application/json;",
				"garbage,application/json", "text/html,application/xhtml+xml,*/*;q=0.8", "application/json;charset=utf-8",
				"application/json;stream=watch", "application/json;stream=foo",
				"application/json;sv=v1", "application/json;sv=v2", "application/json;pretty=1", "application/json;pretty=0",
				"application/json;foo=bar",
				"application/vnd.kubernetes.protobuf;stream=watch", "application/vnd.kubernetes.protobuf;stream=foo",
				" application/json ", "application/json ; q=1")
		}},
	)
	return text
}

// soberAccept is what client-go sends: for objects, and for their metadata.
func (g *generator) soberAccept() string {
	as := ";as=" + g.kind + ";g=meta.k8s.io;v=v1"
	return one(g, asJSON, "*/*", asProtobuf+","+asJSON, asProtobuf+","+asJSON, asJSON+as, asProtobuf+as+","+asJSON+as+","+
		asJSON)
}

// transformed requests a view of the object (W-43, W-45, W-46).
func (g *generator) transformed() string {
	as := one(g, "PartialObjectMetadata", "PartialObjectMetadata", "PartialObjectMetadataList",
		"PartialObjectMetadataList", "Table", "Foo", "")
	group, version := one(g, "meta.k8s.io", "meta.k8s.io", "meta.k8s.io", "meta.k8s.io", "apps", ""),
		one(g, "v1", "v1", "v1", "v1beta1", "v2", "")
	text := one(g, asJSON, asJSON, asProtobuf, asYAML) + ";as=" + as + ";g=" + group + ";v=" + version
	return text + one(g, "", "", ","+asJSON, ","+asProtobuf+",*/*")
}

// qualified is several types with preferences.
func (g *generator) qualified() string {
	var types []string
	for range one(g, 1, 2, 2, 3) {
		types = append(types, one(g, asJSON, asYAML, asProtobuf, "*/*", "garbage")+";q="+
			one(g, "1", "0.9", "0.5", "0.1", "0", "abc", "1.5", ""))
	}
	return strings.Join(types, ",")
}
