package transport

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
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
	// Files are the kubeconfigs that Config was read from, and Reload reads them once more. Empty and
	// nil: there are none.
	Files  []string
	Reload func() (*rest.Config, error)
	// Context and User are their names in the kubeconfigs. ClusterFile and UserFile are those of Files
	// that define the context's cluster and its user. All are empty without Files.
	Context, User, ClusterFile, UserFile string
}

// Credentials names the credentials in a message.
func (s ConfigSource) Credentials() string {
	switch {
	case len(s.Files) == 0:
		return "the pod's service account"
	case s.User == "":
		return fmt.Sprintf("context %q in kubeconfig %s, which names no user", s.Context, s.UserFile)
	}
	return fmt.Sprintf("user %q in kubeconfig %s", s.User, s.UserFile)
}

// LoadConfig reads the kubeconfig at path, and in it the context of a name. Without a name, that is
// the current context. Without a path, LoadConfig reads the service account of the pod that the
// process runs in. Outside pods it then reads the files that kubectl reads: those of KUBECONFIG, or
// else ~/.kube/config. An error is one line that says what to do.
func LoadConfig(path, context string) (ConfigSource, error) {
	if path != "" {
		return loadFiles([]string{path}, context)
	}
	if InPod() {
		cfg, err := rotation.ReadBounded("the pod's service account", inCluster)
		return ConfigSource{Config: cfg}, err
	}
	files, err := defaultFiles()
	if err != nil {
		return ConfigSource{}, err
	}
	return loadFiles(files, context)
}

// InPod reports whether the process runs in a pod, as client-go finds out.
func InPod() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }

// defaultFiles are the kubeconfigs that kubectl reads without --kubeconfig. Those that do not exist
// are left out, as kubectl leaves them out.
func defaultFiles() ([]string, error) {
	all := clientcmd.NewDefaultClientConfigLoadingRules().GetLoadingPrecedence()
	files, err := rotation.ReadBounded(strings.Join(all, ", "), func() ([]string, error) {
		return slices.DeleteFunc(slices.Clone(all), func(name string) bool {
			_, err := os.Stat(name)
			return name == "" || errors.Is(err, fs.ErrNotExist)
		}), nil
	})
	if err != nil || len(files) > 0 {
		return files, err
	}
	why := "there is no " + strings.Join(all, ", ")
	if named := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); named != "" {
		why = clientcmd.RecommendedConfigPathEnvVar + "=" + named + " names no file that exists"
	}
	return nil, fmt.Errorf("no cluster to talk to: %s, and this is not a pod: name a kubeconfig with --kubeconfig", why)
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

// loadFiles reads a context of kubeconfigs, which are merged as kubectl merges them. Tools switch a
// kubeconfig to another context while the proxy runs, and add files. The context and the files of
// the start remain.
func loadFiles(files []string, context string) (ConfigSource, error) {
	for _, name := range files {
		if err := checkKubeconfig(name); err != nil {
			return ConfigSource{}, err
		}
	}
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: files}
	names := strings.Join(files, ", ")
	raw, err := rotation.ReadBounded("kubeconfig "+names, rules.Load)
	if err != nil {
		return ConfigSource{}, fmt.Errorf("kubeconfig %s: %s", names, OneLine(err))
	}
	chosen, err := chooseContext(raw, names, context)
	if err != nil {
		return ConfigSource{}, err
	}
	reload := func() (*rest.Config, error) {
		return rotation.ReadBounded("kubeconfig "+names+", or a file that it names", func() (*rest.Config, error) {
			return fromFiles(rules, names, chosen)
		})
	}
	cfg, err := reload()
	source := ConfigSource{
		Config: cfg, Files: files, Reload: reload, Context: chosen, User: raw.Contexts[chosen].AuthInfo,
		ClusterFile: files[0], UserFile: files[0],
	}
	if cluster := raw.Clusters[raw.Contexts[chosen].Cluster]; cluster != nil && cluster.LocationOfOrigin != "" {
		source.ClusterFile = cluster.LocationOfOrigin
	}
	if user := raw.AuthInfos[source.User]; user != nil && user.LocationOfOrigin != "" {
		source.UserFile = user.LocationOfOrigin
	}
	return source, err
}

// checkKubeconfig says what is wrong with a file that clientcmd cannot read.
func checkKubeconfig(path string) error {
	text, err := rotation.ReadFile(path)
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return fmt.Errorf("kubeconfig %s: %w: name a readable file with --kubeconfig", path, err)
	}
	if _, err := clientcmd.Load(text); err != nil {
		return fmt.Errorf("kubeconfig %s is malformed: %s", path, OneLine(err))
	}
	return nil
}

// chooseContext returns the name of the context that is wanted, or of the current one.
func chooseContext(raw *clientcmdapi.Config, names, wanted string) (string, error) {
	chosen := cmp.Or(wanted, raw.CurrentContext)
	switch {
	case len(raw.Contexts) == 0:
		return "", fmt.Errorf("kubeconfig %s has no contexts: kubectl config set-context makes one", names)
	case chosen == "":
		return "", fmt.Errorf("kubeconfig %s has no current context: choose one with --context, or with kubectl config "+
			"use-context; %s", names, describeContexts(raw))
	case raw.Contexts[chosen] != nil:
		return chosen, nil
	case wanted != "":
		return "", fmt.Errorf("--context=%s: kubeconfig %s has no such context; %s", wanted, names, describeContexts(raw))
	}
	return "", fmt.Errorf("kubeconfig %s: its current context %q does not exist: choose another with --context; %s", names,
		chosen, describeContexts(raw))
}

// contextsLimit is how many contexts a message names.
const contextsLimit = 20

// describeContexts ends a message about a context that does not exist.
func describeContexts(raw *clientcmdapi.Config) string {
	names := slices.Sorted(maps.Keys(raw.Contexts))
	if hidden := len(names) - contextsLimit; hidden > 0 {
		names = append(names[:contextsLimit], fmt.Sprintf("and %d more", hidden))
	}
	return "it has " + strings.Join(names, ", ")
}

// fromFiles is one context of kubeconfigs. Paths of certificates in a file are relative to it, so
// clientcmd loads it, as for kubectl.
func fromFiles(rules *clientcmd.ClientConfigLoadingRules, names, context string) (*rest.Config, error) {
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s, context %q: %s", names, context, OneLine(err))
	}
	for _, name := range rules.Precedence { // clientcmd skips what is gone, and would merge the rest
		if _, err := os.Stat(name); err != nil {
			return nil, err
		}
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
