package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// BackupEtcd copies what etcd has on disk into a folder, which must not exist, between two of its
// writes: etcd stands still meanwhile. What it was about to write is not in it, as after a crash.
func (cp *ControlPlane) BackupEtcd(dir string) (err error) {
	etcd := cp.Etcd()
	if err := etcd.Freeze(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Thaw()) }()
	if err := os.CopyFS(dir, os.DirFS(cp.etcdData())); err != nil {
		return fmt.Errorf("cannot copy etcd's data: %w", err)
	}
	return nil
}

// RestoreEtcd kills etcd and every kube-apiserver that StartAPIServer started, puts the copy of
// BackupEtcd in the place of etcd's data and starts etcd. Its revision is that of the copy, so that
// resourceVersions are given a second time, unless SkipRevisions follows. Then StartAPIServer: one
// that had seen what is no more would go on with it.
func (cp *ControlPlane) RestoreEtcd(ctx context.Context, dir string) error {
	cp.APIServer().Kill()
	cp.Etcd().Kill()
	if err := os.RemoveAll(cp.etcdData()); err != nil {
		return fmt.Errorf("cannot remove etcd's data: %w", err)
	}
	if err := os.CopyFS(cp.etcdData(), os.DirFS(dir)); err != nil {
		return fmt.Errorf("cannot put etcd's data back: %w", err)
	}
	return cp.StartEtcd(ctx)
}

// SkipRevisions raises etcd's revision by at least n and forgets all before, as `etcdutl snapshot
// restore --bump-revision --mark-compacted` does. It returns the new one.
func (cp *ControlPlane) SkipRevisions(ctx context.Context, n int) (int64, error) {
	for range n {
		if err := cp.EtcdCall(ctx, "put", map[string]any{"key": etcdBytes("skipped_revisions"), "value": ""},
			nil); err != nil {
			return 0, err
		}
	}
	return cp.Compact(ctx)
}

func (cp *ControlPlane) etcdData() string { return filepath.Join(cp.dir, "etcd") }
