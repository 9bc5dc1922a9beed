package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
)

// ErrUncacheable says that a resource can never be mirrored, whatever is tried again: its versions
// are not decimal numbers, or its objects cannot be read. It must be passed through.
var ErrUncacheable = errors.New("cannot be mirrored")

// ParseRV reads a resourceVersion. Upstream may choose any text, but only decimal versions can be
// compared (W-242).
func ParseRV(text string) (uint64, error) {
	rv, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: resourceVersion %q is not a decimal number", ErrUncacheable, text)
	}
	return rv, nil
}

// ParseObject reads an object; raw is not kept. An object that cannot be read now cannot be read
// later either.
func ParseObject(r *object.Resource, raw []byte) (*object.Object, error) {
	o, err := r.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUncacheable, err)
	}
	return o, nil
}

// Version is the version of an object or of a bookmark.
type Version struct {
	Key         string // namespace/name, or name; "" of a bookmark
	RV          uint64
	EndsInitial bool // it is the bookmark after which all initial events have been sent (W-110)
}

// ParseVersion reads only the version of an object or of a bookmark.
func ParseVersion(raw []byte) (Version, error) {
	var o struct {
		Metadata struct {
			Namespace       string            `json:"namespace"`
			Name            string            `json:"name"`
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return Version{}, fmt.Errorf("watch event: %w", err)
	}
	v := Version{Key: o.Metadata.Name, EndsInitial: o.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"}
	if o.Metadata.Namespace != "" {
		v.Key = o.Metadata.Namespace + "/" + v.Key
	}
	var err error
	v.RV, err = ParseRV(o.Metadata.ResourceVersion)
	return v, err
}

// StatusError is the error in an ERROR event.
func StatusError(raw []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(raw, &status); err != nil || status.Kind != "Status" {
		return fmt.Errorf("ERROR event with %.200q", raw)
	}
	return &apierrors.StatusError{ErrStatus: status}
}
