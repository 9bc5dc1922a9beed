package serve

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// planHead refuses a HEAD of a built-in resource, which has none, as upstream's router does. Custom resources have it, and there
// it passes through, as every other method does (W-23, W-173).
func planHead(s *Source) Plan {
	if !s.Resource().Info.Builtin {
		return Plan{}
	}
	return refuseEarly(s, apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false))
}
