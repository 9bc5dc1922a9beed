package codec

import (
	"bytes"
	"encoding/json"

	"sigs.k8s.io/yaml"
)

// YAML is a JSON document as YAML, made the way upstream makes it (W-47).
func YAML(document []byte) ([]byte, error) { return yaml.JSONToYAML(document) }

// Indent is a JSON document for people to read: two blanks per level, and no newline at the end
// (W-9).
func Indent(document []byte) ([]byte, error) {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(document), "", "  "); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
