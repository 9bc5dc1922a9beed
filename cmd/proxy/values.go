package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"spillway/internal/inject"
)

// byteSize is a number of bytes that is read and shown as a Kubernetes quantity: 64Mi, 1G, 4096.
type byteSize int64

func (b *byteSize) String() string {
	return resource.NewQuantity(int64(*b), resource.BinarySI).String()
}

// Set takes whole numbers of bytes only: 100m is a tenth of a byte, and surely a slip for 100M.
func (b *byteSize) Set(text string) error {
	q, err := inject.ParseQuantity(strings.TrimSpace(text))
	if err != nil || q.Cmp(*resource.NewQuantity(q.Value(), resource.BinarySI)) != 0 {
		return errors.New("must be a number of bytes, such as 64Mi or 67108864")
	}
	*b = byteSize(q.Value())
	return nil
}

func (b *byteSize) Type() string { return "bytes" }

// choice is a string that can only be one of a few words.
type choice struct {
	value *string
	words []string
}

func newChoice(value *string, words ...string) *choice { return &choice{value: value, words: words} }

func (c *choice) String() string { return *c.value }

func (c *choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		last := len(c.words) - 1
		return fmt.Errorf("must be %s or %s", strings.Join(c.words[:last], ", "), c.words[last])
	}
	*c.value = text
	return nil
}

// Type is what --help shows in the place of the value.
func (c *choice) Type() string { return strings.Join(c.words, "|") }
