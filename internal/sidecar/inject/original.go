package inject

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	k8syaml "sigs.k8s.io/yaml"
)

// original is what a document was before it was written anew. It is kept in an annotation of the
// object that was injected, and counts for as long as the document says what it did then.
type original struct {
	Text string `json:"text"`
	Of   string `json:"of"` // the hash of the new document, without this
}

// maxOriginalBytes is what annotations of an object may have together, but for some room.
const maxOriginalBytes = 240 << 10

// rewritten is the document that says what want says, with its original in the annotations of w.
func (d *document) rewritten(want []byte, w workload) (string, error) {
	of, err := hash(want)
	if err != nil {
		return "", err
	}
	value, err := pack(original{d.text[d.start:d.end], of})
	if err != nil {
		return "", err
	}
	if len(value) > maxOriginalBytes {
		return "", fmt.Errorf("is in a document that is too large to be kept in an annotation, and not in YAML's own form " +
			"(lines of `key: value`): write it so, or one object to a document")
	}
	add := Patch{{"add", w.object + "/metadata/annotations/" + escape(originalAnnotation), value}}
	if object, _ := decode(want); at(object, w.object+"/metadata/annotations") == nil {
		add = append(Patch{{"add", w.object + "/metadata/annotations", map[string]any{}}}, add...)
	}
	if want, err = patched(want, add); err != nil {
		return "", err
	}
	return d.written(want)
}

// originalLimit bounds how many workloads of a document are tried for its original, each of which
// takes as much work as to read it. One keeps it, or a few if it was injected in parts.
const originalLimit = 8

// keepsOriginal reports that a workload has an original, maybe of another document.
func (d *document) keepsOriginal(w workload) bool {
	return at(d.object, w.object+"/metadata/annotations/"+escape(originalAnnotation)) != nil
}

// original is what the document was written from, if w keeps that and the document was not changed
// since.
func (d *document) original(w workload) (string, bool) {
	pointer := w.object + "/metadata/annotations/" + escape(originalAnnotation)
	value, ok := at(d.object, pointer).(string)
	if !ok {
		return "", false
	}
	kept, err := unpack(value)
	if err != nil {
		return "", false
	}
	object, err := decode(d.json)
	if err != nil {
		return "", false
	}
	annotations, _ := at(object, w.object+"/metadata/annotations").(map[string]any)
	delete(annotations, originalAnnotation)
	for _, empty := range []bool{false, true} { // there may have been none before
		if empty && len(annotations) == 0 {
			meta, _ := at(object, w.object+"/metadata").(map[string]any)
			delete(meta, "annotations")
		}
		text, err := json.Marshal(object)
		if err != nil {
			return "", false
		}
		if of, err := hash(text); err == nil && of == kept.Of {
			text := d.text[:d.start] + kept.Text + d.text[d.end:]
			return text, d.isOf(text)
		}
	}
	return "", false
}

// isOf reports that an original says what the document says, but for what was added. What an
// annotation keeps is a stranger's word: it must not turn a Pod into a ClusterRoleBinding when it
// is taken out.
func (d *document) isOf(text string) bool {
	original, err := parse(text)
	if err != nil || original.json == nil {
		return false
	}
	return reflect.DeepEqual(original.bare(), d.bare())
}

// bare is what a document says without what may have been added to it.
func (d *document) bare() any {
	var paths []string
	var changes []change
	for _, w := range d.workloads() {
		paths, changes = append(paths, added(d.object, w)...), append(changes, changed(d.object, w)...)
	}
	object, err := d.stripped(paths, changes)
	if err != nil {
		return nil
	}
	return tidy(object)
}

// tidy is a tree without what is empty, which cannot be distinguished from what was empty before.
func tidy(tree any) any {
	switch node := tree.(type) {
	case map[string]any:
		for key, value := range node {
			if value = tidy(value); isEmpty(value) {
				delete(node, key)
			} else {
				node[key] = value
			}
		}
	case []any:
		for i := range node {
			node[i] = tidy(node[i])
		}
	}
	return tree
}

// written is the text with another document in it, in the same manner: JSON where it was in JSON's.
func (d *document) written(object []byte) (string, error) {
	var out []byte
	var err error
	if d.isFlow {
		var indented bytes.Buffer
		err = json.Indent(&indented, object, "", "  ")
		out = indented.Bytes()
	} else {
		out, err = k8syaml.JSONToYAML(object)
	}
	if err != nil {
		return "", err
	}
	text := d.text[:d.start] + string(out) + d.text[d.end:]
	if !says(text, object) {
		return "", errors.New("is written in a way that cannot be changed: pass it through kubectl create " +
			"--dry-run=client --output=yaml --filename=- first")
	}
	return text, nil
}

// hash is of what a document says, however it is written.
func hash(document []byte) (string, error) {
	object, err := decode(document)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(object) // keys in order
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

func pack(o original) (string, error) {
	var packed bytes.Buffer
	into := gzip.NewWriter(&packed)
	if err := json.NewEncoder(into).Encode(o); err != nil {
		return "", err
	}
	if err := into.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes()), nil
}

// maxTextBytes bounds what an annotation may unfold to.
const maxTextBytes = 32 << 20

func unpack(value string) (o original, err error) {
	packed, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return o, err
	}
	from, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return o, err
	}
	return o, json.NewDecoder(io.LimitReader(from, maxTextBytes)).Decode(&o)
}
