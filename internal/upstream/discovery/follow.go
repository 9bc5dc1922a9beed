package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
	"spillway/internal/upstream"
	"spillway/internal/upstream/wire"
)

// FollowDefinitions calls onChange for every CustomResourceDefinition, at first and whenever its
// epoch changes (see object.Resource.Definition). The epoch is "" once it serves nothing or is
// gone. It returns when ctx ends, or when the API server denies the definitions, with its error.
func FollowDefinitions(ctx context.Context, c *upstream.Client, log *zap.Logger,
	onChange func(resource schema.GroupResource, epoch string)) error {
	gvr := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	return c.Follow(ctx, log, object.NewResource(gvr, "CustomResourceDefinition", false, true), &changeNotifier{
		values: map[string]string{},
		valueOf: func(o *object.Object) (string, error) {
			var d definition
			if err := json.Unmarshal(o.JSON(), &d); err != nil || !d.isEstablished() {
				return "", err
			}
			return d.Epoch, nil
		},
		onChange: func(name, epoch string) { onChange(schema.ParseGroupResource(name), epoch) },
	})
}

// FollowServices calls onChange for every group and version that another server than kube-apiserver
// serves, at first and whenever that changes. The service is "" once kube-apiserver serves it
// again. It returns as FollowDefinitions does.
func FollowServices(ctx context.Context, c *upstream.Client, log *zap.Logger,
	onChange func(gv schema.GroupVersion, service string)) error {
	gvr := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	return c.Follow(ctx, log, object.NewResource(gvr, "APIService", false, true), &changeNotifier{
		values: map[string]string{},
		valueOf: func(o *object.Object) (string, error) {
			var s apiService
			err := json.Unmarshal(o.JSON(), &s)
			return s.origin().service, err
		},
		onChange: func(name, service string) {
			version, group, _ := strings.Cut(name, ".")
			onChange(schema.GroupVersion{Group: group, Version: version}, service)
		},
	})
}

// changeNotifier is a Sink that keeps one value of each object and calls onChange when it changes.
// An object that does not exist has the value "". Objects are not kept: a definition may be large.
type changeNotifier struct {
	valueOf  func(*object.Object) (string, error)
	onChange func(name, value string)
	values   map[string]string // by name; without ""
}

// Replace reports all differences.
func (n *changeNotifier) Replace(objects []*object.Object, _ uint64) error {
	values := make(map[string]string, len(objects))
	for _, o := range objects {
		value, err := n.read(o)
		if err != nil {
			return err
		}
		values[o.Key] = value
	}
	for name, value := range values {
		n.write(name, value)
	}
	for name := range n.values {
		if values[name] == "" {
			n.write(name, "")
		}
	}
	return nil
}

// Add reports a new value.
func (n *changeNotifier) Add(o *object.Object) error { return n.Update(o) }

// Update reports a value that changed.
func (n *changeNotifier) Update(o *object.Object) error {
	value, err := n.read(o)
	if err == nil {
		n.write(o.Key, value)
	}
	return err
}

// Delete reports that the value is gone.
func (n *changeNotifier) Delete(o *object.Object) error {
	n.write(o.Key, "")
	return nil
}

// Bookmark changes no value.
func (n *changeNotifier) Bookmark(*object.Bookmark, uint64) error { return nil }

func (n *changeNotifier) read(o *object.Object) (string, error) {
	value, err := n.valueOf(o)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", wire.ErrUncacheable, o.Key, err)
	}
	return value, nil
}

func (n *changeNotifier) write(name, value string) {
	if n.values[name] == value {
		return
	}
	if n.values[name] = value; value == "" {
		delete(n.values, name)
	}
	n.onChange(name, value)
}
