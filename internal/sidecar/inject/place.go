package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Places of the sidecar among the init containers, besides after:NAME.
const (
	PlaceAuto  = "auto"
	PlaceFirst = "first"
	PlaceLast  = "last"
	placeAfter = "after:"
)

// meshProxies are the names of the proxies of service meshes in pods. They reach their control
// plane by themselves, and are not led through the sidecar. If one is a native sidecar, all traffic
// of the pod is redirected to it, with a CNI plugin before the first container starts. Init
// containers in front of it then reach nothing.
var meshProxies = []string{"istio-proxy", "linkerd-proxy", "kuma-sidecar", "consul-dataplane", "envoy-sidecar", "envoy",
	"osm-proxy", "aws-app-mesh-envoy"}

// meshInits are init containers that redirect traffic to a mesh. meshChecks are only in pods whose
// traffic a CNI plugin has redirected already.
var (
	meshInits  = []string{"istio-init", "linkerd-init", "kuma-init", "consul-connect-inject-init", "osm-init", "proxyinit"}
	meshChecks = []string{"istio-validation", "linkerd-network-validator", "kuma-validation"}
)

// isOfMesh reports that a container belongs to a mesh.
func isOfMesh(name string) bool {
	return slices.Contains(meshProxies, name) || slices.Contains(meshInits, name) || slices.Contains(meshChecks, name)
}

func validatePlace(place string) error {
	name, after := strings.CutPrefix(place, placeAfter)
	if after && name != "" && !strings.ContainsFunc(name, isSpace) ||
		slices.Contains([]string{PlaceAuto, PlaceFirst, PlaceLast}, place) {
		return nil
	}
	return newSettingError(placeSetting, place, "must be auto, first, last or after:NAME, the name of an init container")
}

// findPlace returns the sidecar's index among the init containers. Those in front of it do not go
// through it.
func (o *Options) findPlace(spec *Spec) (int, error) {
	all := spec.InitContainers
	switch name, after := strings.CutPrefix(o.Place, placeAfter); {
	case after:
		i := slices.IndexFunc(all, func(c PodContainer) bool { return c.Name == name })
		if i < 0 {
			return 0, fmt.Errorf("has no init container %s, behind which the sidecar would be: set another %s", name,
				placeSetting.annotation())
		}
		return i + 1, nil
	case o.Place == PlaceFirst:
		return 0, nil
	case o.Place == PlaceLast:
		return len(all), nil
	}
	at := 0
	for i, c := range all {
		if slices.Contains(meshProxies, c.Name) && c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			at = i + 1
		}
	}
	if at > 0 {
		return at, nil
	}
	for _, c := range all {
		if slices.Contains(meshChecks, c.Name) {
			return 0, newNotableSkip("has its traffic redirected to its mesh before its containers start (%s), and the mesh's "+
				"proxy starts after the sidecar, which would reach nothing and never be ready: have the mesh use native sidecars, "+
				"or exclude the API server's address from redirection and set %s: %s", c.Name, placeSetting.annotation(),
				PlaceFirst)
		}
	}
	return 0, nil
}
