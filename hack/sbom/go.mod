// What says what the proxy is built from; a module of its own, so that the proxy's requirements stay its own.
module spillway/hack/sbom

go 1.26.0

require github.com/CycloneDX/cyclonedx-go v0.9.2
