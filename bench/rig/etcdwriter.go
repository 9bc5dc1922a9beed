package rig

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// EtcdWriter changes the stamps of objects in etcd, under the kube-apiservers, so that there can be
// five times as many writes. What a kube-apiserver then receives from etcd, and sends, is the same.
type EtcdWriter struct {
	etcd   *etcd
	keys   []string
	values [][]byte // as a kube-apiserver stored them
	stamps []int    // where their digits are
}

// NewEtcdWriter writes to the objects at these paths, one after the other.
func (p *Pair) NewEtcdWriter(ctx context.Context, paths []string) (*EtcdWriter, error) {
	etcd, err := p.etcd()
	if err != nil {
		return nil, err
	}
	w := &EtcdWriter{etcd: etcd}
	for _, path := range paths {
		key := etcdKey(path)
		value, err := etcd.get(ctx, key)
		if err != nil {
			return nil, err
		}
		at := bytes.Index(value, []byte(StampPrefix))
		if at < 0 {
			return nil, fmt.Errorf("no stamp in what etcd has as %s", key)
		}
		w.keys, w.values, w.stamps = append(w.keys, key), append(w.values, value), append(w.stamps, at+len(StampPrefix))
	}
	return w, nil
}

// etcdKey is where a kube-apiserver stores the object of the core group at a path:
// /api/v1/namespaces/default/configmaps/a is at /registry/configmaps/default/a.
func etcdKey(path string) string {
	parts := strings.Split(path, "/")
	namespace, resource, name := parts[4], parts[5], parts[6]
	return "/registry/" + resource + "/" + namespace + "/" + name
}

// Run writes at a rate, as that of a Writer does.
func (w *EtcdWriter) Run(ctx context.Context, perSecond float64, burst int, while time.Duration) (int, error) {
	return pace(ctx, perSecond, burst, while, func(ctx context.Context, n int) error {
		i := n % len(w.keys)
		value := bytes.Clone(w.values[i])
		copy(value[w.stamps[i]:], strconv.FormatInt(time.Now().UnixNano(), 10))
		return w.etcd.put(ctx, w.keys[i], value)
	})
}
