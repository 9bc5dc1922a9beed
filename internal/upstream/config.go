package upstream

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // whatever kubectl can log in with
)

// LoadConfig reads the kubeconfig at path; without a path, the service account of the pod that this runs in. An error is one line that says
// what to do.
func LoadConfig(path string) (*rest.Config, error) {
	load := inCluster
	if path != "" {
		load = func() (*rest.Config, error) { return fromFile(path) }
	}
	cfg, err := load()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	return cfg, nil
}

func inCluster() (*rest.Config, error) {
	cfg, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("no cluster to talk to: name a kubeconfig with --kubeconfig, or run in a pod")
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the pod has no service account token (%s): set automountServiceAccountToken: true", oneLine(err))
	case err != nil:
		return nil, fmt.Errorf("the pod's service account: %s", oneLine(err))
	}
	return cfg, nil
}

func fromFile(path string) (*rest.Config, error) {
	text, err := os.ReadFile(path) // #nosec G304 -- the operator names it
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, fmt.Errorf("kubeconfig %s: %w: name a readable file with --kubeconfig", path, err)
	}
	raw, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s is malformed: %s", path, oneLine(err))
	}
	if raw.CurrentContext == "" {
		return nil, fmt.Errorf("kubeconfig %s has no current context: kubectl --kubeconfig %s config use-context NAME", path, path)
	}
	// Paths of certificates in the file are relative to it: load it once more, as kubectl does.
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s, context %q: %s", path, raw.CurrentContext, oneLine(err))
	}
	return cfg, nil
}

// BaseURL is upstream's address: scheme, host and, if the apiserver is behind one, a path prefix without a trailing slash.
func BaseURL(cfg *rest.Config) (*url.URL, error) {
	u, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("apiserver address %q: %s; correct the server in the kubeconfig", cfg.Host, oneLine(err))
	}
	for len(u.Path) > 0 && u.Path[len(u.Path)-1] == '/' {
		u.Path = u.Path[:len(u.Path)-1]
	}
	u.RawPath, u.RawQuery, u.Fragment = "", "", ""
	return u, nil
}

// WithIdentity is the upstream that where says, reached as the one that who says. Nothing else of who counts: its credentials are shown to
// nobody but that upstream.
func WithIdentity(where, who *rest.Config) *rest.Config {
	cfg := rest.AnonymousClientConfig(where)
	cfg.Username, cfg.Password, cfg.BearerToken, cfg.BearerTokenFile = who.Username, who.Password, who.BearerToken, who.BearerTokenFile
	cfg.AuthProvider, cfg.AuthConfigPersister, cfg.ExecProvider = who.AuthProvider, who.AuthConfigPersister, who.ExecProvider
	cfg.CertFile, cfg.CertData, cfg.KeyFile, cfg.KeyData = who.CertFile, who.CertData, who.KeyFile, who.KeyData
	return cfg
}
