package controlplane

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"time"
)

// StartEtcd starts etcd on the data it had before. It does nothing while etcd runs.
func (cp *ControlPlane) StartEtcd(ctx context.Context) error {
	cp.etcd.starting.Lock()
	defer cp.etcd.starting.Unlock()
	if running(cp.Etcd()) {
		return nil
	}
	p, err := cp.launchEtcd(ctx, "etcd", cp.etcdData(), cp.ports.etcd, cp.ports.etcdPeer)
	if err == nil {
		cp.etcd.current.Store(p)
	}
	return err
}

func (cp *ControlPlane) launchEtcd(ctx context.Context, log, data string, port, peerPort int) (*Process, error) {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("http://127.0.0.1:%d", peerPort)
	return cp.launch(ctx, program{
		name: "etcd",
		log:  log,
		args: []string{
			"--name=default",
			"--data-dir=" + data,
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=default=" + peer,
			"--unsafe-no-fsync",
			"--log-level=warn",
		},
		ready: func(ctx context.Context) error { return cp.get(ctx, client+"/readyz") },
	})
}

// startSecondEtcd starts the etcd of Options.SecondEtcd, which runs until Stop.
func (cp *ControlPlane) startSecondEtcd(ctx context.Context) error {
	if len(cp.options.SecondEtcd) == 0 {
		return nil
	}
	_, err := cp.launchEtcd(ctx, "etcd-second", filepath.Join(cp.dir, "etcd-second"), cp.ports.second, cp.ports.secondPeer)
	return err
}

// StopEtcd ends etcd; StartEtcd brings it back.
func (cp *ControlPlane) StopEtcd() { cp.Etcd().Stop(10 * time.Second) }

// FreezeEtcd makes etcd deaf and mute without closing a connection, until ThawEtcd.
func (cp *ControlPlane) FreezeEtcd() error { return cp.Etcd().Freeze() }

// ThawEtcd undoes FreezeEtcd.
func (cp *ControlPlane) ThawEtcd() error { return cp.Etcd().Thaw() }

// Etcd is the current run of etcd, or the last one when it is stopped.
func (cp *ControlPlane) Etcd() *Process { return cp.etcd.current.Load() }

// Revision is etcd's revision now: what kube-apiserver calls the most recent resourceVersion.
func (cp *ControlPlane) Revision(ctx context.Context) (int64, error) {
	var answer struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := cp.EtcdCall(ctx, "range", map[string]any{"key": etcdBytes("compact_rev_key")}, &answer); err != nil {
		return 0, err
	}
	revision, err := strconv.ParseInt(answer.Header.Revision, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("etcd answered without a revision: %w", err)
	}
	return revision, nil
}

// Compact forgets all history before the present revision, which it returns, the way another
// kube-apiserver's compactor would. Reads that go to etcd answer 410 from then on; that very
// revision can still be listed, and watched from the one before it. A watch cache drops its own
// snapshots of that history only when it next looks, up to 15 s later, and it keeps its events, so
// watches from a resourceVersion in its window go on.
func (cp *ControlPlane) Compact(ctx context.Context) (int64, error) {
	revision, err := cp.Revision(ctx)
	if err != nil {
		return 0, err
	}
	// Where compactors exchange, with each other and their API servers' caches, how far they got.
	mark := map[string]any{"key": etcdBytes("compact_rev_key"), "value": etcdBytes(strconv.FormatInt(revision, 10))}
	if err := cp.EtcdCall(ctx, "put", mark, nil); err != nil {
		return 0, err
	}
	order := map[string]any{"revision": strconv.FormatInt(revision, 10), "physical": true}
	if err := cp.EtcdCall(ctx, "compaction", order, nil); err != nil {
		return 0, err
	}
	return revision, nil
}

// EtcdAddress is where etcd listens, 127.0.0.1:port, for reads of what kube-apiserver does not
// show.
func (cp *ControlPlane) EtcdAddress() string { return fmt.Sprintf("127.0.0.1:%d", cp.ports.etcd) }

func (cp *ControlPlane) etcdURL() string { return "http://" + cp.EtcdAddress() }

// EtcdCall speaks etcd's JSON gateway, such as the method put, which saves us the dependency on its
// client. answer may be nil.
func (cp *ControlPlane) EtcdCall(ctx context.Context, method string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("cannot encode etcd's %s: %w", method, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, cp.etcdURL()+"/v3/kv/"+method, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("cannot ask etcd for %s: %w", method, err)
	}
	response, err := cp.users.client.Do(r)
	if err != nil {
		return fmt.Errorf("cannot ask etcd for %s: %w", method, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("cannot read etcd's answer to %s: %w", method, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd refuses %s: %s: %s", method, response.Status, data)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("cannot decode etcd's answer to %s: %w", method, err)
	}
	return nil
}

func etcdBytes(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
