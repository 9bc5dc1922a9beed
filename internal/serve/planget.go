package serve

import (
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// planGet plans a GET of one object (W-95). It looks at the resourceVersion and nothing else (W-34).
func planGet(s *Source, t target, query url.Values, hurried bool) Plan {
	if queryBool(query, "export") {
		return refuse(s, apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported"))
	}
	rv, err := parseRV(query.Get("resourceVersion"))
	if err != nil {
		return refuse(s, err)
	}
	return Plan{Action: FromCache, Source: s, Get: &GetPlan{Key: t.key(), Name: t.name, RV: rv, Hurried: hurried}}
}
