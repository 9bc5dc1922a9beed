// Package clientconfig writes kubeconfigs that lead to Spillway.
//
// Invariant: such a kubeconfig can be moved to another folder. Its user is that of another
// kubeconfig. Certificates and keys are copied, and files that clients read again and again, such
// as tokens, are named by their full paths.
package clientconfig

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// name is that of the only cluster, context and user.
const name = "spillway"

// Options name a Spillway and a user.
type Options struct {
	Server    string // URL
	CAFile    string // the authorities of its certificate, in PEM; empty: the system's
	From      string // the kubeconfig that has the user; empty: there is no user, or that of TokenFile
	TokenFile string // a file with the user's token, where the kubeconfig is used; not with From
	Context   string // of From; empty: its current one
	Namespace string // empty: that of the context
}

// Make makes the kubeconfig, and a warning about its user, if there is one. Errors name the flag
// that gave the option.
func Make(o Options) (text []byte, warning string, err error) {
	if err := o.validate(); err != nil {
		return nil, "", err
	}
	config, err := o.newConfig()
	if err != nil {
		return nil, "", err
	}
	if user := config.AuthInfos[name]; user != nil && len(user.ClientCertificateData) > 0 {
		warning = "its user has a client certificate, and is anonymous at a spillway that does not verify it: that takes " +
			"--client-ca-file (clientCA of the chart), and --impersonate-client-certs for requests that pass through; " +
			"without them, use a token: kubectl --token, or --token-file here instead of --kubeconfig"
	}
	text, err = clientcmd.Write(*config)
	return text, warning, err
}

// validate refuses what could not work, or would send credentials in the clear.
func (o Options) validate() error {
	server, err := url.Parse(o.Server)
	if err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https" {
		return fmt.Errorf("--server=%s: must be https://host:port, or http://127.0.0.1:port; clients know no unix sockets",
			o.Server)
	}
	isPlain := server.Scheme == "http"
	switch {
	case isPlain && server.Hostname() != "localhost" && !net.ParseIP(server.Hostname()).IsLoopback():
		return fmt.Errorf("--server=%s: spillway serves plain HTTP on loopback only: use https://", o.Server)
	case isPlain && o.CAFile != "":
		return fmt.Errorf("--ca-file=%s: requires https:// in --server", o.CAFile)
	case o.Context != "" && o.From == "":
		return fmt.Errorf("--context=%s: requires --kubeconfig", o.Context)
	case o.TokenFile != "" && o.From != "":
		return fmt.Errorf("--token-file=%s: cannot be used with --kubeconfig, which has a user already", o.TokenFile)
	case o.TokenFile != "" && isPlain:
		return fmt.Errorf("--token-file=%s: clients send no credentials over plain HTTP: use --server=https://…",
			o.TokenFile)
	case o.TokenFile != "" && !filepath.IsAbs(o.TokenFile):
		return fmt.Errorf("--token-file=%s: must be a full path, as it is where the kubeconfig is used", o.TokenFile)
	case o.From != "" && isPlain: // client-go drops the user of such a cluster silently
		return fmt.Errorf("--kubeconfig=%s: clients send no credentials over plain HTTP: use --server=https://…, or remove "+
			"--kubeconfig, for a spillway with --listen-identity=self", o.From)
	}
	return nil
}

func (o Options) newConfig() (config *api.Config, err error) {
	cluster, context := api.NewCluster(), api.NewContext()
	cluster.Server = o.Server
	if o.CAFile != "" {
		if cluster.CertificateAuthorityData, err = readCertificates(o.CAFile); err != nil {
			return nil, err
		}
	}
	context.Cluster, context.Namespace = name, o.Namespace
	config = api.NewConfig()
	config.Clusters[name], config.Contexts[name], config.CurrentContext = cluster, context, name
	switch {
	case o.TokenFile != "":
		config.AuthInfos[name] = &api.AuthInfo{TokenFile: o.TokenFile}
	case o.From != "":
		user, namespace, err := o.readUser()
		if err != nil {
			return nil, err
		}
		config.AuthInfos[name], context.Namespace = user, cmp.Or(o.Namespace, namespace)
	default:
		return config, nil
	}
	context.AuthInfo = name
	return config, nil
}

func readCertificates(file string) ([]byte, error) {
	text, err := os.ReadFile(file) // #nosec G304 -- the user names it
	if err != nil {
		return nil, fmt.Errorf("--ca-file=%s: cannot be read: %s", file, cause(err))
	}
	if !bytes.Contains(text, []byte("-----BEGIN CERTIFICATE-----")) {
		return nil, fmt.Errorf("--ca-file=%s: holds no certificate in PEM", file)
	}
	return text, nil
}

// readUser reads the user of a context of From, with the contents of its files, and the namespace
// of that context.
func (o Options) readUser() (user *api.AuthInfo, namespace string, err error) {
	from, err := clientcmd.LoadFromFile(o.From)
	if err != nil {
		return nil, "", fmt.Errorf("--kubeconfig=%s: cannot be read: %s", o.From, cause(err))
	}
	wanted := cmp.Or(o.Context, from.CurrentContext)
	context := from.Contexts[wanted]
	if context == nil {
		return nil, "", fmt.Errorf("--kubeconfig=%s: has no context %q: name one with --context; it has %s", o.From,
			wanted, cmp.Or(strings.Join(slices.Sorted(maps.Keys(from.Contexts)), ", "), "none"))
	}
	user = from.AuthInfos[context.AuthInfo]
	if user == nil {
		return nil, "", fmt.Errorf("--kubeconfig=%s: the user %q of its context %q is missing", o.From, context.AuthInfo,
			wanted)
	}
	alone := &api.Config{AuthInfos: map[string]*api.AuthInfo{name: user}} // other users' files may be missing
	if err := clientcmd.ResolveLocalPaths(alone); err != nil {
		return nil, "", fmt.Errorf("--kubeconfig=%s: %w", o.From, err)
	}
	if err := api.FlattenConfig(alone); err != nil {
		return nil, "", fmt.Errorf("--kubeconfig=%s: of the user of its context %q, %w", o.From, wanted, err)
	}
	return user, context.Namespace, nil
}

// cause is the error of the operating system, without the operation and the path around it.
func cause(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
