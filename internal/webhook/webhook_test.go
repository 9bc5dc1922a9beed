package webhook

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"spillway/internal/inject"
	"spillway/internal/listen"
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
