// Package quantity reads Kubernetes quantities of untrusted input: of annotations, of pods, and of
// flags that annotations set.
//
// Invariant: the time that it takes to read a text is bounded by its length.
package quantity

import (
	"errors"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
)

// grammar is the part of resource.Quantity's grammar that is in use. Exponents have at most two
// digits, because resource.ParseQuantity writes out the number: 1e-10000000 takes it 15 seconds.
var grammar = regexp.MustCompile(`^[+-]?[0-9.]{1,32}([eE][+-]?[0-9]{1,2}|[a-zA-Z]{0,2})$`)

// Parse reads a quantity.
func Parse(text string) (resource.Quantity, error) {
	if !grammar.MatchString(text) {
		return resource.Quantity{}, errors.New("must be a quantity, such as 100m or 128Mi")
	}
	return resource.ParseQuantity(text)
}
