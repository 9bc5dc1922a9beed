package fuzzdiff

import "strings"

// oddPath is a path that a careless server would repair, or take for another (W-20, W-21, W-172).
func (g *generator) oddPath() {
	r := g.resource()
	namespace := one(g, g.state.Namespaces...)
	path := r.collection(namespace)
	if g.percent(40) {
		path += "/" + one(g, r.Names...)
	}
	g.ask.path = g.twisted(path, r)
	if g.percent(70) {
		g.param("resourceVersion", g.version())
	}
	g.queryNoise()
}

func (g *generator) twisted(path string, r Resource) string {
	slash := strings.LastIndexByte(path, '/')
	return one(g,
		path+"/", path+"//", "/"+path, path+"/.", path+"/..", path+"/%2e%2e", path+"?", path+"/nonsense", path+"/status",
		path+"/scale", path+"%20", path+"%00",
		path[:slash]+"//"+path[slash+1:], path[:slash]+"%2F"+path[slash+1:], path[:slash]+"/../"+path[slash+1:], path[:slash]+
			"/./"+path[slash+1:],
		strings.ToUpper(path), strings.Replace(path, r.Plural, everyByte(r.Plural), 1),
		strings.Replace(path, r.Plural, strings.ToUpper(r.Plural[:1])+r.Plural[1:], 1),
		strings.Replace(path, r.Plural, r.Plural+"s", 1), strings.Replace(path, "/namespaces/", "/namespaces//", 1),
		strings.Replace(path, "/namespaces/", "/Namespaces/", 1),
		strings.Replace(path, "/v1/", "/v2/", 1), strings.Replace(path, "/v1/", "/", 1),
		strings.Replace(path, "/v1/", "/v1/watch/", 1),
		strings.Replace(path, "api", "apis", 1), r.Prefix+"/"+r.Plural+"/"+one(g, r.Names...), r.Prefix+"/namespaces/"+
			one(g, g.state.Namespaces...)+"/nodes", r.Prefix, r.Prefix+"/",
		path+"/log", path+"/"+strings.Repeat("x/", 20), path+"%zz", path+"%",
	)
}

// oddMethod is anything but a GET; what would write cannot be understood (W-23, W-48).
func (g *generator) oddMethod() {
	r := g.resource()
	g.ask.path = r.collection(g.namespace())
	if g.percent(50) {
		g.ask.path = r.collection(one(g, g.state.Namespaces...)) + "/" + g.name(r)
	}
	if g.percent(60) {
		g.param("resourceVersion", g.version())
	}
	g.queryNoise()
	g.ask.method = one(g, "HEAD", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "get", "POST", "PUT", "PATCH")
	switch g.ask.method {
	case "POST", "PUT", "PATCH":
		g.ask.body = one(g, "nonsense", "{", "[]", `{"kind":"Nonsense","apiVersion":"v1"}`)
		g.ask.header = append(g.ask.header, field{"Content-Type", one(g, asJSON, asYAML, "text/html", "")})
	}
}

// elsewhere is what is no resource at all.
func (g *generator) elsewhere() {
	g.ask.path = one(g, "/", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version", "/healthz", "/livez",
		"/readyz/ping", "/nonsense", "/api/v1/watch", "/api/v1/watch/", "/apis/nonsense/v1/foos",
		"/api/v1/namespaces/none", "/apis/discovery.k8s.io/v1/endpointslices",
		"/apis/authorization.k8s.io/v1/subjectaccessreviews", "/openapi/v3", "/favicon.ico")
	g.queryNoise()
}
