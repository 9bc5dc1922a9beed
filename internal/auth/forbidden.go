package auth

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// sanitizer keeps what a client wrote from being read as HTML. Quotes stay.
var sanitizer = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Forbidden is the API server's 403 to an identity that may not do something (W-174). reason is the
// authorizer's, or empty; it alone is not the client's word and stays as it is.
func Forbidden(who *Identity, what Attributes, reason string) *metav1.Status {
	message := sanitizer.Replace(forbiddenMessage(who.name, what))
	if reason != "" {
		message += ": " + reason
	}
	s := apierrors.NewForbidden(schema.GroupResource{Group: what.Group, Resource: what.Resource}, what.Name,
		errors.New(message)).Status()
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &s
}

func forbiddenMessage(user string, a Attributes) string {
	if a.Path != "" {
		return fmt.Sprintf("User %q cannot %s path %q", user, a.Verb, a.Path)
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	message := fmt.Sprintf("User %q cannot %s resource %q in API group %q", user, a.Verb, resource, a.Group)
	if a.Namespace == "" {
		return message + " at the cluster scope"
	}
	return message + fmt.Sprintf(" in the namespace %q", a.Namespace)
}
