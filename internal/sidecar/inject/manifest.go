package inject

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ObjectResult is what became of one object.
type ObjectResult struct {
	Object     string // deployment/name
	SkipReason string // why nothing was done to it; empty: it was
	Notes      []string
}

// Manifest adds sidecars to what a stream of YAML or JSON documents holds: pods and what makes
// pods, in lists or not. A document without any stays as it is, byte for byte; one that is changed
// is written again, in YAML with its comments and in its order. An error is one line that names the
// object, and then nothing is to be used.
func Manifest(text string, o Options) (string, []ObjectResult, error) {
	return rewrite(text, func(w workload) (Patch, []string, error) {
		template, err := w.read()
		if err != nil {
			return nil, nil, err
		}
		return Plan(template, o)
	})
}

// Remove takes out what Manifest has added, and what the webhook has: such a document says again
// what it said, but for lists and mappings that were empty. Where it was changed since then, or has
// been through the API server, what is not Manifest's stays. All other documents stay as they are.
func Remove(text string) (string, []ObjectResult, error) {
	return rewrite(text, func(w workload) (Patch, []string, error) {
		template, err := w.read()
		if err != nil {
			return nil, nil, &SkippedError{reason: err.Error()}
		}
		patch := planRemoval(template, w.template)
		if len(patch) == 0 {
			return nil, nil, &SkippedError{reason: "it is not injected"}
		}
		return patch, nil, nil
	})
}

// textLimitBytes bounds a stream. A manifest of 1 MB is a large one.
const textLimitBytes = 16 << 20

// operationLimit bounds what is done to a document. A pod takes 5 to 20 operations, which add some
// hundred values to it.
const operationLimit = 20_000

// rewrite changes the workloads of every document of a stream, and puts the stream together again.
func rewrite(text string, plan func(workload) (Patch, []string, error)) (string, []ObjectResult, error) {
	switch {
	case len(text) > textLimitBytes:
		return "", nil, fmt.Errorf("is %d bytes long, of at most %d: give it in parts", len(text), textLimitBytes)
	case !utf8.ValidString(text):
		return "", nil, errors.New("not valid UTF-8")
	}
	var out strings.Builder
	var all []ObjectResult
	line := 1
	for _, part := range split(text) {
		documents, err := parse(part)
		if err != nil {
			return "", nil, fmt.Errorf("the document in line %d: %w", line, err)
		}
		for _, d := range documents {
			changed, done, err := d.rewrite(plan)
			if err != nil {
				line += strings.Count(d.text[:d.start], "\n")
				return "", nil, fmt.Errorf("%s, in the document in line %d: %w", done[len(done)-1].Object, line, err)
			}
			out.WriteString(changed)
			all = append(all, done...)
			line += strings.Count(d.text, "\n")
		}
	}
	return out.String(), all, nil
}

// rewrite changes the workloads of a document. An error is about the last one that it returns.
func (d *document) rewrite(plan func(workload) (Patch, []string, error)) (string, []ObjectResult, error) {
	var all []ObjectResult
	var patch Patch
	for _, w := range workloadsIn(d.object, "") {
		of, notes, err := plan(w)
		done := ObjectResult{Object: w.name, Notes: notes}
		var left *SkippedError
		if errors.As(err, &left) {
			done.SkipReason, err = left.Error(), nil
		}
		patch, all = append(patch, of.at(w.pointer)...), append(all, done)
		if err == nil && len(patch) > operationLimit {
			err = fmt.Errorf("is one of too many, which need more than %d changes: give them in parts", operationLimit)
		}
		if err != nil {
			return "", all, err
		}
	}
	if len(patch) == 0 {
		return d.text, all, nil
	}
	text, err := d.patched(patch)
	if err == nil {
		err = checkValues(text) // what is printed can be read again
	}
	return text, all, err
}
