package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Done is what became of one object.
type Done struct {
	Object string // deployment/name
	Left   string // why nothing was done to it; empty: it was
}

// Manifest adds sidecars to what a stream of YAML or JSON documents holds: pods and what makes pods, in lists or not. All else is as it was, byte for byte. An
// error is one line that names the object, and then nothing is to be used.
func Manifest(text string, o Options) (string, []Done, error) {
	return each(text, func(d *document, w workload) (bool, error) { return d.inject(w, o) }, false)
}

// Remove takes out what Manifest has added: what Manifest wrote becomes what it was written from. Where the result was changed since then, or has
// been through the API server, what is not Manifest's stays.
func Remove(text string) (string, []Done, error) {
	return each(text, (*document).remove, true)
}

// each does something to every workload of a stream and puts the stream together again. Backwards is what undoes what was done forwards, since the later
// may rest on the earlier.
func each(text string, do func(*document, workload) (bool, error), backwards bool) (string, []Done, error) {
	if !utf8.ValidString(text) {
		return "", nil, errors.New("not valid UTF-8")
	}
	var out strings.Builder
	var all []Done
	line := 1
	for _, part := range split(text) {
		changed, done, err := eachOf(part, line, do, backwards)
		if err != nil {
			return "", nil, err
		}
		out.WriteString(changed)
		all = append(all, done...)
		line += len(lineStarts(part)) - 1
	}
	return out.String(), all, nil
}

// eachOf does it to one document, which begins in a line of the stream.
func eachOf(text string, line int, do func(*document, workload) (bool, error), backwards bool) (string, []Done, error) {
	d, err := parse(text)
	if err != nil {
		return "", nil, fmt.Errorf("the document in line %d: %w", line, err)
	}
	var all []Done
	workloads := d.workloads()
	if backwards {
		slices.Reverse(workloads)
	}
	for _, w := range workloads {
		done := Done{Object: w.name}
		changed, err := do(d, w)
		var left *LeftError
		switch {
		case errors.As(err, &left):
			done.Left = left.Error()
		case err != nil:
			return "", nil, fmt.Errorf("%s, in the document in line %d: %w", w.name, line, err)
		case changed:
			if d, err = parse(d.text); err != nil {
				return "", nil, fmt.Errorf("BUG: %s, in the document in line %d, became unreadable: %w", w.name, line, err)
			}
		}
		all = append(all, done)
	}
	if backwards {
		slices.Reverse(all)
	}
	return d.text, all, nil
}

// inject adds to one workload of a document. The text is kept but for what is inserted; where that cannot be, because of how it is written, the
// document is written anew, and keeps its original.
func (d *document) inject(w workload, o Options) (bool, error) {
	template, err := d.template(w)
	if err != nil {
		return false, err
	}
	patch, err := Plan(template, o)
	if err != nil {
		return false, err
	}
	patch = patch.at(w.template)
	want, err := patched(d.json, patch)
	if err != nil {
		return false, err
	}
	if text, ok := insertAll(d.text, patch); ok && says(text, want) && restores(text, d.text) {
		d.text = text
		return true, nil
	}
	text, err := d.rewritten(want, w)
	if err == nil && !restores(text, d.text) {
		err = errors.New("is written in a way that it could not be given back: pass it through kubectl create --dry-run=client --output=yaml --filename=- first")
	}
	d.text = text
	return true, err
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
