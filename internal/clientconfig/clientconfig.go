// Package clientconfig writes kubeconfigs that lead to Spillway. The user of such a kubeconfig is
// that of another kubeconfig, wherever the file is: certificates and keys are copied into it, and
// files that are read again and again are named by their full paths.
package clientconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// name is that of the only cluster, context and user.
const name = "spillway"

// Options name a Spillway and a user.
type Options struct {
	Server    string // URL
	CAFile    string // what its certificate is verified by; the system's authorities when empty
	From      string // a kubeconfig with the user; no user when empty
	TokenFile string // or whose token is in this file, wherever the kubeconfig is used
	Context   string // of From; its current one when empty
	Namespace string // that of the context when empty
}

// Make is the kubeconfig, and a warning about its user, if there is one. Errors name the flag that
// gave the option.
func Make(o Options) (text []byte, warning string, err error) {
	config, err := o.config()
	if err != nil {
		return nil, "", err
	}
	if user := config.AuthInfos[name]; user != nil && len(user.ClientCertificateData) > 0 {
		warning = "its user has a client certificate, and is anonymous at a spillway that does not verify it: that takes " +
			"--client-ca-file (clientCA of the chart), and --impersonate-client-certs for requests that pass through"
	}
	text, err = clientcmd.Write(*config)
	return text, warning, err
}

func (o Options) config() (*api.Config, error) {
	server, err := o.server()
	if err != nil {
		return nil, err
	}
	config := api.NewConfig()
	cluster, context := api.NewCluster(), api.NewContext()
	cluster.Server = o.Server
	context.Cluster, context.Namespace = name, o.Namespace
	config.Clusters[name], config.Contexts[name], config.CurrentContext = cluster, context, name
	if o.CAFile != "" {
		if server.Scheme != "https" {
			return nil, fmt.Errorf("--certificate-authority=%s: has a meaning only with https:// in --server", o.CAFile)
		}
		if cluster.CertificateAuthorityData, err = os.ReadFile(o.CAFile); err != nil {
			return nil, fmt.Errorf("--certificate-authority=%s: cannot be read: %s", o.CAFile, cause(err))
		}
		if !strings.Contains(string(cluster.CertificateAuthorityData), "-----BEGIN CERTIFICATE-----") {
			return nil, fmt.Errorf("--certificate-authority=%s: holds no certificate in PEM", o.CAFile)
		}
	}
	if o.From == "" && o.Context != "" {
		return nil, fmt.Errorf("--context=%s: has a meaning only with --kubeconfig", o.Context)
	}
	if o.TokenFile != "" {
		if err := o.takeToken(server, config); err != nil {
			return nil, err
		}
		context.AuthInfo = name
	}
	if o.From != "" && server.Scheme == "http" { // client-go leaves the user of such a cluster out without a word
		return nil, fmt.Errorf("--kubeconfig=%s: clients send no credentials over plain HTTP: give --server=https://…, or "+
			"leave --kubeconfig out, for a spillway "+
			"with --listen-identity=self", o.From)
	}
	if o.From != "" {
		user, namespace, err := o.user()
		if err != nil {
			return nil, err
		}
		config.AuthInfos[name], context.AuthInfo = user, name
		if context.Namespace == "" {
			context.Namespace = namespace
		}
	}
	return config, nil
}

// takeToken has the user be whose token is in a file, such as a pod's.
func (o Options) takeToken(server *url.URL, config *api.Config) error {
	switch {
	case o.From != "":
		return fmt.Errorf("--token-file=%s: the user is that of --kubeconfig already: leave one of them out", o.TokenFile)
	case server.Scheme == "http":
		return fmt.Errorf("--token-file=%s: clients send no credentials over plain HTTP: give --server=https://…",
			o.TokenFile)
	case !filepath.IsAbs(o.TokenFile):
		return fmt.Errorf("--token-file=%s: must be a full path, as it is where the kubeconfig is used", o.TokenFile)
	}
	config.AuthInfos[name] = &api.AuthInfo{TokenFile: o.TokenFile}
	return nil
}

// server reads where Spillway is. Plain HTTP is for this machine.
func (o Options) server() (*url.URL, error) {
	u, err := url.Parse(o.Server)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("--server=%s: must be https://host:port, or http://127.0.0.1:port; clients know no unix "+
			"sockets", o.Server)
	case u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback():
		return nil, fmt.Errorf("--server=%s: spillway serves plain HTTP on loopback only: take https://", o.Server)
	}
	return u, nil
}

// user is the user of a context of From, with what its files hold, and its namespace.
func (o Options) user() (*api.AuthInfo, string, error) {
	from, err := clientcmd.LoadFromFile(o.From)
	if err != nil {
		return nil, "", fmt.Errorf("--kubeconfig=%s: cannot be read: %s", o.From, cause(err))
	}
	wanted := o.Context
	if wanted == "" {
		wanted = from.CurrentContext
	}
	context := from.Contexts[wanted]
	if context == nil {
		return nil, "", fmt.Errorf("--kubeconfig=%s: has no context %q: name one with --context", o.From, wanted)
	}
	user := from.AuthInfos[context.AuthInfo]
	if user == nil {
		return nil, "", fmt.Errorf("--kubeconfig=%s: its context %q names no user that it has", o.From, wanted)
	}
	alone := &api.Config{AuthInfos: map[string]*api.AuthInfo{name: user}} // the files of others need not be there
	if err := clientcmd.ResolveLocalPaths(alone); err != nil {
		return nil, "", fmt.Errorf("--kubeconfig=%s: %w", o.From, err)
	}
	if err := api.FlattenConfig(alone); err != nil {
		return nil, "", fmt.Errorf("--kubeconfig=%s: of the user of its context %q, %w", o.From, wanted, err)
	}
	return user, context.Namespace, nil
}

// cause is what the operating system said, without the operation and path around it.
func cause(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
