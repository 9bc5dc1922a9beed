package outage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/test/framework/process"
)

// lost is how many writes are lost with the etcd that is put back.
const lost = 300

// listed is the resourceVersion of the complete state, as the proxy answers it.
func (w *world) listed() (string, error) {
	a := w.ask(http.MethodGet, configMaps, "")
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if a.code != http.StatusOK {
		return "", fmt.Errorf("a list: %d %s", a.code, a.body)
	}
	return list.Metadata.ResourceVersion, json.Unmarshal([]byte(a.body), &list)
}

// watched is what a short watch from a resourceVersion shows.
func (w *world) watched(rv string) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), process.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.proxy.Plain+configMaps+
		"?watch=1&timeoutSeconds=1&resourceVersion="+rv, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var all strings.Builder
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		all.WriteString(lines.Text())
	}
	return all.String(), nil
}

// An etcd is put back to an earlier state, and its revisions are not raised. Every client has to
// begin again, once: what upstream answers then, the proxy takes, though the resource has no events
// until its revisions have come to where they were.
func TestEtcdRestoredToOldRevisions(t *testing.T) {
	w := newWorld(t)
	backup := filepath.Join(t.TempDir(), "etcd")
	if err := w.cp.BackupEtcd(backup); err != nil {
		t.Fatal(err)
	}
	for i := range lost {
		w.write(fmt.Sprint("lost-", i))
	}
	awaitAll(t, w.all, fmt.Sprint("lost-", lost-1), time.Now())
	promised, err := w.cp.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.cp.APIServer().Kill()
	if err := w.cp.RestoreEtcd(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	if err := w.cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	process.Awaiting(t, "streams to be ended", func(context.Context) error {
		for _, s := range w.raw {
			if !s.over() {
				return errors.New("one is open")
			}
		}
		return nil
	})
	for range 10 {
		rv := ""
		process.Awaiting(t, "a list", func(context.Context) (err error) {
			rv, err = w.listed()
			return err
		})
		if text, err := w.watched(rv); err != nil || strings.Contains(text, "ERROR") {
			t.Errorf("a watch from the list at %s: %s %v", rv, text, err)
		}
	}
	revision, err := w.cp.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if revision >= promised {
		t.Fatalf("etcd is at %d, and had promised %d: this tests nothing", revision, promised)
	}
	asked := 0
	for _, s := range w.all {
		asked = max(asked, s.started())
	}
	t.Logf("etcd was put back from %d to %d at most; no informer has asked for the complete state more than %d times in "+
		"all", promised, revision, asked)
	// First; the version that is no more, by a watch-list and by a LIST; and what is most recent.
	if asked > 5 {
		t.Errorf("an informer has asked for the complete state %d times", asked)
	}
	w.write("after")
	for _, s := range w.all {
		if !s.over() { // the raw ones have ended
			awaitAll(t, []*seen{s}, "after", time.Now())
		}
	}
}
