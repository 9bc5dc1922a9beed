package config

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// AllResources in --resources stands for whatever can be listed and watched.
const AllResources = "*"

// CheckResource checks that arg is "*" or resource[.version][.group], kubectl's grammar. A version
// without a group needs no dot at its end: pods.v1. Only
// discovery can tell whether the cluster has such a resource, and whether b in a.b.c is a version
// or part of a group.
func CheckResource(arg string) error {
	if arg == AllResources {
		return nil
	}
	if strings.Contains(arg, "/") {
		return errors.New("subresources cannot be mirrored; name the resource alone")
	}
	if arg != strings.ToLower(arg) {
		return errors.New("must be in lower case, as in the NAME and APIVERSION columns of kubectl api-resources")
	}
	versioned, plain := schema.ParseResourceArg(arg)
	if len(validation.IsDNS1123Label(plain.Resource)) != 0 {
		return errors.New(notAResource)
	}
	if versioned != nil && versioned.Group == "" {
		return errorUnless(len(validation.IsDNS1123Label(versioned.Version)) == 0, notAResource)
	}
	hasGroup := strings.Contains(arg, ".")
	return errorUnless(!hasGroup || len(validation.IsDNS1123Subdomain(plain.Group)) == 0, notAResource)
}

const notAResource = "must be * or resource[.version][.group], such as pods, deployments.apps or " +
	"widgets.v1.example.com"
