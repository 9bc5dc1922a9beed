package transport

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // whatever kubectl can log in with
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"spillway/internal/rotation"
)

// ConfigSource is a client's configuration, and where it came from.
type ConfigSource struct {
	Config *rest.Config
	// File is the kubeconfig that Config was read from, and Reload reads it once more. Empty and
	// nil: there is none.
	File   string
	Reload func() (*rest.Config, error)
}

// LoadConfig reads the kubeconfig at path; without a path, the service account of the pod that the
// process runs in. An error is one line that says what to do.
func LoadConfig(path string) (ConfigSource, error) {
	if path == "" {
		cfg, err := rotation.ReadBounded("the pod's service account", inCluster)
		return ConfigSource{Config: cfg}, err
	}
	raw, err := readKubeconfig(path)
	if err != nil {
		return ConfigSource{}, err
	}
	// Tools switch a kubeconfig to another context while the proxy runs: that of the start counts.
	context := raw.CurrentContext
	reload := func() (*rest.Config, error) {
		return rotation.ReadBounded("kubeconfig "+path+", or a file that it names", func() (*rest.Config, error) {
			return fromFile(path, context)
		})
	}
	cfg, err := reload()
	return ConfigSource{Config: cfg, File: path, Reload: reload}, err
}

func inCluster() (*rest.Config, error) {
	cfg, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("no cluster to talk to: name a kubeconfig with --kubeconfig, or run in a pod")
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the pod has no service account token (%s): set automountServiceAccountToken: true",
			OneLine(err))
	case err != nil:
		return nil, fmt.Errorf("the pod's service account: %s", OneLine(err))
	}
	cfg.QPS = -1
	return cfg, nil
}

// readKubeconfig reads a kubeconfig that has a current context.
func readKubeconfig(path string) (*clientcmdapi.Config, error) {
	text, err := rotation.ReadFile(path)
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, fmt.Errorf("kubeconfig %s: %w: name a readable file with --kubeconfig", path, err)
	}
	raw, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s is malformed: %s", path, OneLine(err))
	}
	if raw.CurrentContext == "" {
		return nil, fmt.Errorf("kubeconfig %s has no current context: kubectl --kubeconfig %s config use-context NAME", path,
			path)
	}
	return raw, nil
}

// fromFile is one context of a kubeconfig. Paths of certificates in the file are relative to it, so
// clientcmd loads it, as for kubectl.
func fromFile(path, context string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s, context %q: %s", path, context, OneLine(err))
	}
	cfg.QPS = -1
	return cfg, nil
}

// BaseURL is upstream's address: scheme, host and, if a proxy serves the API server below one, a
// path prefix without a trailing slash.
func BaseURL(cfg *rest.Config) (*url.URL, error) {
	u, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("API server address %q: %s; correct the server in the kubeconfig", cfg.Host, OneLine(err))
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath, u.RawQuery, u.Fragment = "", "", ""
	return u, nil
}

// OneLine is an error's text in one line.
func OneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
