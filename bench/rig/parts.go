package rig

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Part is one of the things that a program measures.
type Part struct {
	Name string
	Play func(ctx context.Context) error
}

// Parts are all that a program measures, in order.
type Parts []Part

// Names are the names of all, as a flag takes them.
func (p Parts) Names() string {
	var names []string
	for _, part := range p {
		names = append(names, part.Name)
	}
	return strings.Join(names, ",")
}

// Choose returns those whose names are listed, separated by commas; all if none is.
func (p Parts) Choose(names string) (Parts, error) {
	if names == "" {
		return p, nil
	}
	wanted := strings.Split(names, ",")
	var chosen Parts
	for _, part := range p {
		if i := slices.Index(wanted, part.Name); i >= 0 {
			chosen = append(chosen, part)
			wanted = slices.Delete(wanted, i, i+1)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("there is no %q: there are %s", wanted, p.Names())
	}
	return chosen, nil
}

// Play plays them one after another.
func (p Parts) Play(ctx context.Context) error {
	for _, part := range p {
		if err := part.Play(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.Name, err)
		}
	}
	return nil
}
