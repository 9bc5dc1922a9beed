package inject

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ObjectResult is the outcome for one object that has pods, or for one document without any.
type ObjectResult struct {
	Object     string // deployment/name
	HasNoPods  bool   // the document stays as it is
	SkipReason string // why it was not changed, with HasNoPods always; empty: it was
	Notes      []string
}

// Manifest adds sidecars to the workloads in a stream of YAML or JSON documents: pods and objects
// that make pods, in lists or not. A document without any stays as it is, byte for byte, and has a
// result of its own unless it is empty. A changed one is written again; YAML keeps its comments and
// its order. An error is one line that names the object, and there is no other result then.
func Manifest(text string, o Options) (string, []ObjectResult, error) {
	return rewrite(text, func(w workload) (Patch, []string, error) {
		template, err := w.read()
		if err != nil {
			return nil, nil, err
		}
		return Plan(Pod{Template: template}, o)
	})
}

// Remove removes what Manifest or the webhook has added. The document then has the content that it
// had, except lists and mappings that were empty. Later changes, also by the API server, stay. All
// other documents stay as they are.
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

// planFunc returns the patch of a workload's template, with notes about it.
type planFunc func(workload) (Patch, []string, error)

// rewrite patches the workloads of every document of a stream, and puts the stream together again.
func rewrite(text string, plan planFunc) (string, []ObjectResult, error) {
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
			changed, results, err := d.patchWorkloads(plan)
			if err != nil {
				line += strings.Count(d.text[:d.start], "\n")
				return "", nil, fmt.Errorf("%s, in the document in line %d: %w", results[len(results)-1].Object, line, err)
			}
			out.WriteString(changed)
			if name, reason := d.describe(); len(results) == 0 && name != "" {
				results = []ObjectResult{{Object: name, HasNoPods: true, SkipReason: reason}}
			}
			all = append(all, results...)
			line += strings.Count(d.text, "\n")
		}
	}
	return out.String(), all, nil
}

// patchWorkloads returns the text of a document with patched workloads. An error is about the last
// object that it returns.
func (d *document) patchWorkloads(plan planFunc) (string, []ObjectResult, error) {
	var all []ObjectResult
	var patch Patch
	for _, w := range workloadsIn(d.object, "") {
		change, notes, err := plan(w)
		result := ObjectResult{Object: w.name, Notes: notes}
		var skipped *SkippedError
		if errors.As(err, &skipped) {
			result.SkipReason, err = skipped.Error(), nil
		}
		patch, all = append(patch, change.at(w.pointer)...), append(all, result)
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
		err = checkValues(text) // so that Remove can read it
	}
	return text, all, err
}
