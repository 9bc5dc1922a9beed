package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"spillway/internal/quantity"
)

// ByteSize is a number of bytes, read as a Kubernetes quantity and shown in binary units (4096 as
// 4Ki).
type ByteSize int64

// String implements pflag.Value.
func (b *ByteSize) String() string {
	return resource.NewQuantity(int64(*b), resource.BinarySI).String()
}

// Set accepts whole numbers of bytes only: 100m is a tenth of a byte, and surely meant as 100M.
// Settings.Validate refuses negative ones.
func (b *ByteSize) Set(text string) error {
	q, err := quantity.Parse(strings.TrimSpace(text))
	if err != nil || q.Cmp(*resource.NewQuantity(q.Value(), resource.BinarySI)) != 0 {
		return errors.New(mustBeBytes)
	}
	*b = ByteSize(q.Value())
	return nil
}

const mustBeBytes = "must be a number of bytes, such as 64Mi or 67108864"

// Type implements pflag.Value.
func (b *ByteSize) Type() string { return "bytes" }

// choice is a string that can only be one of a few words.
type choice struct {
	value *string
	words []string
}

// NewChoice is the value of a flag that accepts one of at least two words.
func NewChoice(value *string, words ...string) pflag.Value {
	return &choice{value: value, words: words}
}

func (c *choice) String() string { return *c.value }

func (c *choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return errors.New(mustBeOneOf(c.words))
	}
	*c.value = text
	return nil
}

func mustBeOneOf(words []string) string {
	last := len(words) - 1
	return "must be " + strings.Join(words[:last], ", ") + " or " + words[last]
}

// Type is what --help shows in the place of the value.
func (c *choice) Type() string { return strings.Join(c.words, "|") }
