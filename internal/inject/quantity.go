package inject

import (
	"errors"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
)

// quantity is what ParseQuantity takes of resource.Quantity's grammar: what is in use, without
// exponents of more than two digits. Of a number with a large negative exponent,
// resource.ParseQuantity makes one with as many digits: of 1e-10000000 in 15 seconds.
var quantity = regexp.MustCompile(`^[+-]?[0-9.]{1,32}([eE][+-]?[0-9]{1,2}|[a-zA-Z]{0,2})$`)

// ParseQuantity reads a Kubernetes quantity that may be a stranger's.
func ParseQuantity(text string) (resource.Quantity, error) {
	if !quantity.MatchString(text) {
		return resource.Quantity{}, errors.New("must be a quantity, such as 100m or 128Mi")
	}
	return resource.ParseQuantity(text)
}
