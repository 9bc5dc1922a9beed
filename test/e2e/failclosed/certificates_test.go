package failclosed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
	"spillway/test/framework/wire"
)

func authority(t *testing.T) *controlplane.Authority {
	t.Helper()
	a, err := controlplane.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// certified is a user with a certificate of an authority's, and the right to read.
func (w *world) certified(t *testing.T, by *controlplane.Authority, name string, end time.Time) authcluster.User {
	t.Helper()
	pair, err := by.IssueClientUntil(end, name)
	if err != nil {
		t.Fatal(err)
	}
	return authcluster.WithCertificate(t, name, pair)
}

// authorityChanges replaces the authority of the clients' certificates. Those of the old one
// authenticate no user any more, not even on the connections that they have, and their watches end;
// those of the new one do.
func (w *world) authorityChanges(t *testing.T) {
	t.Parallel()
	old, next, end := authority(t), authority(t), time.Now().Add(time.Hour)
	before, after := w.certified(t, old, "rotated", end), w.certified(t, next, "rotated", end)
	w.Grant(t, before, authcluster.Everywhere(reads.Rules...))
	w.Settle(t)
	file := w.File(t, "rotated.crt", old.PEM())
	proxy := process.StartProxy(t, w.binary, append(w.ProxyFlags(), "--resources=configmaps", "--client-ca-file="+file)...)
	awaitMemory(t, proxy, before)
	expect(t, proxy, after, list, itself, http.StatusUnauthorized)
	to := authcluster.Through(proxy, before)
	kept, err := wire.Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if a, _, err := kept.Ask(http.MethodGet, request(to, before, list)); err != nil || a.Status != http.StatusOK {
		t.Fatalf("%+v, %v", a, err)
	}
	f := follow(t, to, before)
	w.File(t, "rotated.crt", next.PEM())
	changed := time.Now()
	awaitMemory(t, proxy, after)
	expect(t, proxy, before, list, itself, http.StatusUnauthorized)
	if a, _, err := kept.Ask(http.MethodGet, request(to, before, list)); err != nil ||
		a.Status != http.StatusUnauthorized {
		t.Errorf("on a connection from before: %+v, %v", a, err)
	}
	<-f.done
	t.Logf("a watch by the old authority ended after %.1f s", time.Since(changed).Seconds())
	if took := time.Since(changed); took > 30*time.Second || f.err != nil || f.answer.Cut != nil {
		t.Errorf("it ended after %v: %v", took, f.err)
	}
	if n := process.Metric(t, proxy.Metrics,
		`spillway_reauthorization_terminations_total{reason="unauthenticated"`); n != 1 {
		t.Errorf("%d watches were ended for it", n)
	}
}

// certificateEnds lets a certificate end while its connection stays.
func (w *world) certificateEnds(t *testing.T) {
	t.Parallel()
	w.Grant(t, w.Certified(t, "ends"), authcluster.Everywhere(reads.Rules...))
	w.Settle(t)
	proxy := process.StartProxy(t, w.binary, append(w.ProxyFlags(), "--resources=configmaps")...)
	awaitMemory(t, proxy, w.certified(t, w.Clients, "ends", time.Now().Add(time.Hour)))
	var (
		p    authcluster.User
		end  time.Time
		kept *wire.Conn
		f    *follower
	)
	for lasts := 5 * time.Second; f == nil; lasts *= 2 { // until it does not end before its first answers
		end = time.Now().Add(lasts).Truncate(time.Second) // a certificate says when it ends in seconds
		p = w.certified(t, w.Clients, "ends", end)
		kept, f = w.whileItLasts(t, authcluster.Through(proxy, p), p, end)
	}
	to := authcluster.Through(proxy, p)
	<-f.done
	if late := time.Since(end); late > 30*time.Second || f.err != nil || f.answer.Cut != nil {
		t.Errorf("the watch ended %v after the certificate: %v", late, f.err)
	}
	time.Sleep(time.Until(end.Add(time.Second)))
	if a, received, err := kept.Ask(http.MethodGet, request(to, p, list)); err != nil ||
		a.Status != http.StatusUnauthorized {
		t.Errorf("on a connection from before: %v %q", err, received)
	}
	expect(t, proxy, p, list, itself, http.StatusUnauthorized)
}

// whileItLasts is a connection on which the user was served, and a watch of the user's. There are
// none if the certificate expired before.
func (w *world) whileItLasts(t *testing.T, to wire.Address, p authcluster.User, end time.Time) (*wire.Conn, *follower) {
	t.Helper()
	kept, err := wire.Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kept.Close)
	a, _, err := kept.Ask(http.MethodGet, request(to, p, list))
	if err != nil {
		t.Fatal(err)
	}
	if a.Status == http.StatusOK {
		f, ok := tryFollow(t, to, p)
		if ok {
			return kept, f
		}
		if a, err = f.answer, f.err; err != nil {
			t.Fatal(err)
		}
	}
	if a.Status != http.StatusUnauthorized || !time.Now().After(end) {
		t.Fatalf("%+v, %v before the end of the certificate", a, time.Until(end))
	}
	return nil, nil
}

// servingChanges replaces the certificate that the proxy shows while watches run. They go on; new
// connections are shown the new one.
func (w *world) servingChanges(t *testing.T) {
	t.Parallel()
	p := w.ServiceAccount(t, "red", "serving", 0)
	w.Grant(t, p, authcluster.Everywhere(reads.Rules...))
	w.Settle(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	show := func(a *controlplane.Authority) {
		pair, err := a.IssueServer("spillway")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(cert, pair.Cert, 0o600), os.WriteFile(key, pair.Key, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	old, next := authority(t), authority(t)
	show(old)
	proxy := process.StartProxy(t, w.binary, append(w.ProxyFlags(), "--resources=configmaps", "--tls-cert-file="+cert,
		"--tls-private-key-file="+key)...)
	trusting := func(a *controlplane.Authority) wire.Address {
		to := authcluster.Through(proxy, p)
		to.TLS = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
		to.TLS.RootCAs.AppendCertsFromPEM(a.PEM())
		return to
	}
	if _, _, err := get(t.Context(), trusting(next), p, list); err == nil {
		t.Fatal("it is shown already")
	}
	awaitMemory(t, proxy, p)
	f := follow(t, trusting(old), p)
	show(next)
	process.Awaiting(t, "the new certificate to be shown", func(ctx context.Context) error {
		a, _, err := get(ctx, trusting(next), p, list)
		if err == nil && (a.Status != http.StatusOK || !fromMemory(a)) {
			err = fmt.Errorf("%d", a.Status)
		}
		return err
	})
	if _, _, err := get(t.Context(), trusting(old), p, list); err == nil {
		t.Error("the old one is shown still")
	}
	w.object(t, "busy", "serving", map[string]string{"word": f.word})
	f.awaitLast(t)
}

// otherAudience shows tokens with other audiences: the proxy's own audience, if it has one, serves
// at the proxy, and upstream's only upstream.
func (w *world) otherAudience(t *testing.T) {
	t.Parallel()
	whole := w.ServiceAccount(t, "red", "audience", 0)
	w.Grant(t, whole, reads)
	w.Settle(t)
	ours := authcluster.Bearer("for the proxy", w.Token(t, "red", "audience", 0, "spillway"))
	others := authcluster.Bearer("for others", w.Token(t, "red", "audience", 0, "elsewhere"))
	usual := process.StartProxy(t, w.binary, append(w.ProxyFlags(), "--resources=configmaps")...)
	awaitMemory(t, usual, whole)
	own := process.StartProxy(t, w.binary, append(w.ProxyFlags(), "--resources=configmaps", "--api-audiences=spillway")...)
	awaitMemory(t, own, ours)
	for _, target := range []string{list, watch} {
		expect(t, usual, ours, target, anybody, http.StatusUnauthorized)
		expect(t, usual, others, target, anybody, http.StatusUnauthorized)
		expect(t, own, others, target, anybody, http.StatusUnauthorized)
		expect(t, own, whole, target, upstream, http.StatusOK)
		expect(t, own, ours, target, itself, http.StatusOK)
	}
	expect(t, own, ours, "/api/v1/namespaces/red/configmaps/a", anybody, http.StatusUnauthorized)
}
