package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"spillway/internal/listen"
	"spillway/internal/sidecar/inject"
	"spillway/internal/tlsconn"
	"spillway/internal/tlsconn/tlsconntest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// writePair writes a new certificate and its key.
func writePair(t *testing.T, certFile, keyFile string) {
	t.Helper()
	config, _, err := listen.TLS{}.Config()
	if err != nil {
		t.Fatal(err)
	}
	pair := config.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	if err := errors.Join(os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, text, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// A webhook that knows no cluster does not start, unless what namespaces allow is to be ignored.
func TestWebhookWithoutCluster(t *testing.T) {
	dir := t.TempDir()
	w := &Webhook{
		Sidecar: inject.Defaults(), Listen: "127.0.0.1:0", Limits: LimitsRead, Kubeconfig: filepath.Join(dir, "none"),
	}
	w.CertFile, w.KeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writePair(t, w.CertFile, w.KeyFile)
	err := w.Run(t.Context(), t.Context(), zap.NewNop())
	if err == nil || !strings.HasPrefix(err.Error(), "--namespace-limits=read: kubeconfig "+w.Kubeconfig+": ") ||
		!strings.HasSuffix(err.Error(), "or say --namespace-limits=ignore") {
		t.Error(err)
	}
}

// A webhook that ends before the rules are known does not name missing permissions as the cause.
func TestEndOfTheWaitForRulesIsNoWarning(t *testing.T) {
	const kubeconfig = `{"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.WarnLevel)
	rules, err := newClusterRules(file, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	defer rules.client.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	rules.await(ended)
	if logs.Len() > 0 {
		t.Errorf("it warns: %v", logs.All())
	}
}

// The webhook takes neither certificates of more than 16 KiB nor a TLS message without an end, and
// answers probes meanwhile.
func TestWebhookBoundsTLS(t *testing.T) {
	dir := t.TempDir()
	w := &Webhook{Sidecar: inject.Defaults(), Listen: "127.0.0.1:0", Limits: LimitsIgnore}
	w.CertFile, w.KeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writePair(t, w.CertFile, w.KeyFile)
	w.ClientCA = w.CertFile
	core, logs := observer.New(zap.InfoLevel)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, t.Context(), zap.New(core)) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	address := ""
	for end := time.Now().Add(time.Minute); address == "" && time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, entry := range logs.FilterMessage("serving admission reviews").All() {
			address = entry.ContextMap()["address"].(string)
		}
	}
	huge := tlsconntest.Certificate(t, tlsconntest.Usages(80_000))
	if c, err := tlsconntest.Dial(t, address, nil, huge); err == nil {
		_, _ = io.Copy(io.Discard, c) // tickets, until it is cut
	}
	c, err := tlsconntest.Dial(t, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SendUnfinished(256 << 10) // fails when it is cut
	_, _ = io.Copy(io.Discard, c)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a throw-away
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get("https://" + address + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Error(response.Status)
	}
	failed := logs.FilterMessageSnippet("TLS handshake error").FilterMessageSnippet(tlsconn.ErrHandshakeTooLong.Error())
	if failed.Len() != 1 {
		t.Errorf("logged %v", logs.All())
	}
}
