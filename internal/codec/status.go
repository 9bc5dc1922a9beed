package codec

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
)

// Status is a failure as a document of its own, in whatever format the client understands (W-10);
// JSON without its newline.
func Status(f object.Format, s *metav1.Status) ([]byte, error) {
	if f == object.Protobuf {
		msg, err := s.Marshal()
		return appendDocument(nil, s.TypeMeta, msg), err
	}
	raw, err := json.Marshal(s)
	if err == nil && f == object.YAML {
		return YAML(raw)
	}
	return raw, err
}
