package conformance

// objects are GETs of one object (W-95 to W-97).
func objects() []scenario {
	all := []scenario{
		get("unset", "W-95", c1+"/a", upstream, 0),
		get("0", "W-5 W-8 W-95", c1+"/a?resourceVersion=0", memory, 0),
		get("N", "W-95", c1+"/b?resourceVersion=${mid}", memory, 0),
		get("long ago", "W-95", c1+"/b?resourceVersion=${old}", memory, 0),
		get("too large", "W-68 W-95", c1+"/a?resourceVersion=${future}", memory, 504),
		get("too large and not there", "W-68 W-95", c1+"/zz?resourceVersion=${future}", memory, 504),
		get("malformed", "W-27 W-181", c1+"/a?resourceVersion=abc", memory, 500),
		get("negative", "W-27", c1+"/a?resourceVersion=-1", memory, 500),
		get("not there", "W-96", c1+"/zz", upstream, 404),
		get("not there at 0", "W-96", c1+"/zz?resourceVersion=0", memory, 404),
		get("not there at N", "W-96", c1+"/zz?resourceVersion=${mid}", memory, 404),
		get("deleted", "W-96", c1+"/t?resourceVersion=${mid}", memory, 404),
		get("in a namespace that does not exist", "W-20 W-96", "/api/v1/namespaces/none/configmaps/a?resourceVersion=0",
			memory, 404),
		get("in upper case", "W-21 W-96", c1+"/UPPER?resourceVersion=0", memory, 404),
		get("escaped", "W-21", c1+"/%61?resourceVersion=0", memory, 0),
		get("slash at the end", "W-21", c1+"/a/?resourceVersion=0", memory, 0),
		get("custom not there", "W-96", someWidgets+"/zz?resourceVersion=0", memory, 404),
		get("characters that JSON escapes", "W-8", "/api/v1/namespaces/c2/configmaps/escapes?resourceVersion=0", memory, 0),
		get("options of lists", "W-34",
			c1+"/a?resourceVersion=0&watch=true&labelSelector=app%3Dnone&limit=abc&resourceVersionMatch=Exact", memory, 0),
		get("export", "W-34", c1+"/a?resourceVersion=0&export=true", memory, 400),
		get("pretty", "W-9", c1+"/a?resourceVersion=0&pretty=1", upstream, 0),
		get("bad timeout", "W-28", c1+"/a?resourceVersion=0&timeout=abc", upstream, 400),
		get("subresource", "W-97", "/api/v1/namespaces/c1/pods/p1/status?resourceVersion=0", upstream, 0),
		get("subresource of a namespace", "W-20 W-97", "/api/v1/namespaces/c1/status?resourceVersion=0", upstream, 0),
		get("finalize of a namespace", "W-20 W-23", "/api/v1/namespaces/c1/finalize?resourceVersion=0", upstream, 405),
		get("scale", "W-97", deployments+"/d1/scale", upstream, 0),
		get("custom subresource", "W-97", someWidgets+"/w1/status", upstream, 0),
		get("unknown version", "W-234", betaWidgets+"/w1?resourceVersion=0", upstream, 0),
	}
	for name, path := range map[string]string{
		"pod": "/api/v1/namespaces/c1/pods/p1", "secret": "/api/v1/namespaces/c1/secrets/opaque",
		"service":   "/api/v1/namespaces/c1/services/plain",
		"endpoints": "/api/v1/namespaces/c1/endpoints/plain", "namespace": "/api/v1/namespaces/c1",
		"node":       "/api/v1/nodes/n1",
		"deployment": deployments + "/d1", "widget": someWidgets + "/w1",
	} {
		all = append(all,
			get(name+"/0", "W-95 W-60", path+"?resourceVersion=0", memory, 0),
			get(name+"/unset", "W-95", path, upstream, 0),
			get(name+"/N", "W-95", path+"?resourceVersion=${mid}", memory, 0))
	}
	return over("object", all)
}
