package chaos

import (
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The resources that are written and watched.
var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	widgets    = schema.GroupVersionResource{Group: "chaos.example", Version: "v1", Resource: "widgets"}
	resources  = []schema.GroupVersionResource{configMaps, pods, widgets}
)

// namespaces are where they are.
var namespaces = []string{"chaos-a", "chaos-b"}

const (
	markAnnotation = "chaos.example/mark" // differs in each version
	teamLabel      = "team"
)

// teams is what their label may be.
var teams = []string{"red", "blue"}

// object is what is read of one.
type object struct {
	Metadata struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
		Labels          map[string]string `json:"labels"`
	} `json:"metadata"`
	Code    int    `json:"code"`    // of a Status
	Message string `json:"message"` // likewise
}

func (o *object) key() string { return o.Metadata.Namespace + "/" + o.Metadata.Name }

func (o *object) version() version {
	rv, _ := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64) // one that is none is never right
	return version{rv: rv, uid: o.Metadata.UID, mark: o.Metadata.Annotations[markAnnotation],
		team: o.Metadata.Labels[teamLabel]}
}

// collectionPath is where a resource is, in a namespace or in all.
func collectionPath(r schema.GroupVersionResource, namespace string) string {
	path := "/apis/" + r.Group + "/" + r.Version + "/"
	if r.Group == "" {
		path = "/api/" + r.Version + "/"
	}
	if namespace != "" {
		path += "namespaces/" + namespace + "/"
	}
	return path + r.Resource
}
