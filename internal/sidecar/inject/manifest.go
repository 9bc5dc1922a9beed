package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Done is what became of one object.
type Done struct {
	Object string // deployment/name
	Left   string // why nothing was done to it; empty: it was
	Notes  []string
}

// Manifest adds sidecars to what a stream of YAML or JSON documents holds: pods and what makes
// pods, in lists or not. All else is as it was, byte for byte. An error is one line that names the
// object, and then nothing is to be used.
func Manifest(text string, o Options) (string, []Done, error) {
	return each(text, func(d *document) ([]Done, error) { return d.inject(o) })
}

// Remove takes out what Manifest has added: what Manifest wrote becomes what it was written from.
// Where the result was changed since then, or has been through the API server, what is not
// Manifest's stays.
func Remove(text string) (string, []Done, error) { return each(text, (*document).remove) }

// textLimitBytes bounds a stream. A manifest of 1 MB is a large one.
const textLimitBytes = 16 << 20

// each does something to every document of a stream and puts the stream together again.
func each(text string, do func(*document) ([]Done, error)) (string, []Done, error) {
	switch {
	case len(text) > textLimitBytes:
		return "", nil, fmt.Errorf("is %d bytes long, of at most %d: give it in parts", len(text), textLimitBytes)
	case !utf8.ValidString(text):
		return "", nil, errors.New("not valid UTF-8")
	}
	var out strings.Builder
	var all []Done
	next := 1
	for _, part := range split(text) {
		line := next
		if start, ok := startOfJSON(part); ok {
			line += lineEnds(part[:start])
		}
		next += lineEnds(part)
		d, err := parse(part)
		if err != nil {
			return "", nil, fmt.Errorf("the document in line %d: %w", line, err)
		}
		done, err := do(d)
		var of *objectError
		switch {
		case errors.As(err, &of):
			return "", nil, fmt.Errorf("%s, in the document in line %d: %w", of.object, line, of.err)
		case err != nil:
			return "", nil, fmt.Errorf("the document in line %d: %w", line, err)
		}
		out.WriteString(d.text)
		all = append(all, done...)
	}
	return out.String(), all, nil
}

// objectError is of one object of a document.
type objectError struct {
	object string
	err    error
}

func (e *objectError) Error() string { return e.object + ": " + e.err.Error() }

// inject adds to the workloads of a document. The text is kept but for what is inserted; where that
// cannot be, because of how it is written, the document is written anew, and keeps its original
// with the first of them.
func (d *document) inject(o Options) ([]Done, error) {
	var all []Done
	var patch Patch
	var keeper workload
	for _, w := range d.workloads() {
		of, notes, err := d.plan(w, o)
		var left *LeftError
		switch {
		case errors.As(err, &left):
			all = append(all, Done{Object: w.name, Left: left.Error()})
			continue
		case err != nil:
			return nil, &objectError{w.name, err}
		case len(patch) == 0:
			keeper = w
		}
		patch = append(patch, of...)
		all = append(all, Done{Object: w.name, Notes: notes})
	}
	if len(patch) == 0 {
		return all, nil
	}
	want, err := patched(d.json, patch)
	if err != nil {
		return nil, err
	}
	if !d.isFlow {
		if text, ok := insertAll(d.text, patch); ok && says(text, want) && restores(text, d.text) {
			d.text = text
			return all, nil
		}
	}
	text, err := d.rewritten(want, keeper)
	if err == nil && !restores(text, d.text) {
		err = errors.New("is written in a way that it could not be given back: pass it through kubectl create " +
			"--dry-run=client --output=yaml --filename=- first")
	}
	if err != nil {
		return nil, &objectError{keeper.name, err}
	}
	d.text = text
	return all, nil
}

// plan is what is to be done to a document for one of its workloads.
func (d *document) plan(w workload, o Options) (Patch, []string, error) {
	template, err := d.template(w)
	if err != nil {
		return nil, nil, err
	}
	patch, notes, err := Plan(template, o)
	return patch.at(w.template), notes, err
}

// says reports that text means what it is meant to.
func says(text string, want []byte) bool {
	d, err := parse(text)
	return err == nil && sameJSON(d.json, want)
}

// restores reports that text leads back to the original.
func restores(text, original string) bool {
	back, _, err := Remove(text)
	if err != nil {
		return false
	}
	before, _, err := Remove(original) // other workloads of the same list may have been injected before
	return err == nil && back == before
}

// template reads the pod template of a workload.
func (d *document) template(w workload) (*Template, error) {
	spec := w.template + "/spec"
	if err := checkContainers(len(itemsAt(d.object, spec+"/initContainers")) +
		len(itemsAt(d.object, spec+"/containers"))); err != nil { // before as many are decoded
		return nil, err
	}
	text, err := json.Marshal(at(d.object, w.template))
	if err != nil {
		return nil, err
	}
	template, err := decodeTemplate(text)
	if err != nil {
		return nil, fmt.Errorf("its pods cannot be read: %w", err)
	}
	return template, nil
}
