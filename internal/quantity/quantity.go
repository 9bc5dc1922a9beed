// Package quantity reads Kubernetes quantities of strangers: of annotations, of pods, and of flags
// that annotations set.
//
// The invariant: to read a text takes no longer than its length suggests.
package quantity

import (
	"errors"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
)

// grammar is what Parse takes of resource.Quantity's grammar: what is in use, without exponents of
// more than two digits. Of a number with a large negative exponent,
// resource.ParseQuantity makes one with as many digits: of 1e-10000000 in 15 seconds.
var grammar = regexp.MustCompile(`^[+-]?[0-9.]{1,32}([eE][+-]?[0-9]{1,2}|[a-zA-Z]{0,2})$`)

// Parse reads a quantity.
func Parse(text string) (resource.Quantity, error) {
	if !grammar.MatchString(text) {
		return resource.Quantity{}, errors.New("must be a quantity, such as 100m or 128Mi")
	}
	return resource.ParseQuantity(text)
}
