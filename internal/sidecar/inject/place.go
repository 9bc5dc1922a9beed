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

// meshProxies are proxies of service meshes, as they are called in pods. They have ways of their
// own to their control plane, and are not led through the sidecar. Where one is a native sidecar,
// all traffic of the pod is redirected to it from some point on, which is before the first
// container with a CNI plugin: what is in front of it reaches nothing.
var meshProxies = []string{"istio-proxy", "linkerd-proxy", "kuma-sidecar", "consul-dataplane", "envoy-sidecar", "envoy",
	"osm-proxy", "aws-app-mesh-envoy"}

// meshInits prepare a mesh's redirection, and meshChecks are in pods alone whose traffic a CNI
// plugin has redirected before.
var (
	meshInits  = []string{"istio-init", "linkerd-init", "kuma-init", "consul-connect-inject-init", "osm-init", "proxyinit"}
	meshChecks = []string{"istio-validation", "linkerd-network-validator", "kuma-validation"}
)

// isOfMesh reports that a container is a mesh's.
func isOfMesh(name string) bool {
	return slices.Contains(meshProxies, name) || slices.Contains(meshInits, name) || slices.Contains(meshChecks, name)
}

func validatePlace(place string) error {
	name, after := strings.CutPrefix(place, placeAfter)
	if after && name != "" && !strings.ContainsFunc(name, isSpace) ||
		slices.Contains([]string{PlaceAuto, PlaceFirst, PlaceLast}, place) {
		return nil
	}
	return newSettingError("place", place, "must be auto, first, last or after:NAME, the name of an init container")
}

// findPlace returns how many init containers are in front of the sidecar. Those do not go through
// it.
func (o *Options) findPlace(spec *Spec) (int, error) {
	all := spec.InitContainers
	switch name, after := strings.CutPrefix(o.Place, placeAfter); {
	case after:
		i := slices.IndexFunc(all, func(c PodContainer) bool { return c.Name == name })
		if i < 0 {
			return 0, fmt.Errorf("has no init container %s, after which the sidecar would be: say another %s", name,
				PlaceAnnotation)
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
			return 0, &SkippedError{fmt.Sprintf(
				"has its traffic redirected to its mesh before its containers start (%s), and the mesh's proxy starts after the "+
					"sidecar, which would "+
					"reach nothing and never be ready: have the mesh use native sidecars, or exclude the API server's address from "+
					"redirection and say %s: %s", c.Name, PlaceAnnotation, PlaceFirst), true}
		}
	}
	return 0, nil
}
