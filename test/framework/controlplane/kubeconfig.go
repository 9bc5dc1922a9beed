package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig is the file by which a program is user at kube-apiserver.
func (cp *ControlPlane) Kubeconfig(user User) string {
	return filepath.Join(cp.dir, strings.ReplaceAll(string(user), ":", "-")+".kubeconfig")
}

// WriteKubeconfig writes what config says about server, trust, token and client certificate as a
// kubeconfig file, readable by its owner only. It appears whole or not at all. A config of a Host
// alone serves for a proxy on plain HTTP.
func WriteKubeconfig(path string, config *rest.Config) error {
	const name = "controlplane"
	kubeconfig := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   config.Host,
			CertificateAuthorityData: config.CAData,
			InsecureSkipTLSVerify:    config.Insecure,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			Token:                 config.BearerToken,
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: "default"}},
		CurrentContext: name,
	}
	partial := path + ".partial"
	if err := clientcmd.WriteToFile(kubeconfig, partial); err != nil {
		return fmt.Errorf("cannot write kubeconfig %s: %w", path, err)
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("cannot put kubeconfig %s in place: %w", path, err)
	}
	return nil
}
