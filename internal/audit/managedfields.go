package audit

import (
	"bytes"
	"encoding/json"
)

// withoutManagedFields is an object or a list without its managed fields; nil if it is neither.
func withoutManagedFields(raw []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var document map[string]any
	if err := decoder.Decode(&document); err != nil {
		return nil
	}
	deleteManagedFields(document)
	items, _ := document["items"].([]any)
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			deleteManagedFields(object)
		}
	}
	lean, err := json.Marshal(document)
	if err != nil {
		return nil
	}
	return lean
}

func deleteManagedFields(object map[string]any) {
	if meta, ok := object["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
}
