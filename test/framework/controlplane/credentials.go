package controlplane

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// User is a user of the control plane.
type User string

// The users and what they may do. Any other User has no credentials either, unless Options name it.
const (
	Admin     User = "admin"            // everything (system:masters), by token
	Alice     User = "alice"            // get, list and watch everything in namespace default, by token
	Bob       User = "bob"              // nothing but discovery, by token
	Carol     User = "carol"            // get, list and watch everything everywhere, by client certificate
	Anonymous User = "system:anonymous" // no credentials
)

// readers is Carol's group, named in her certificate.
const readers = "spillway:readers"

// credentials are made again for each control plane and kept through restarts of its programs.
type credentials struct {
	tokens map[User]string
	groups map[User][]string // of those with tokens
	ca     []byte            // PEM
	carol  KeyPair
	client *http.Client // trusts ca; keeps no connection, so that it leaves no goroutine behind
	files  struct {
		ca, serverCert, serverKey, tokens, serviceAccountKey string
	}
}

// newCredentials makes all keys, certificates and tokens and writes those that kube-apiserver reads
// into dir.
func newCredentials(dir string, others map[User][]string) (*credentials, error) {
	c := &credentials{tokens: map[User]string{}, groups: map[User][]string{Admin: {"system:masters"}, Alice: nil,
		Bob: nil}}
	maps.Copy(c.groups, others)
	for user := range c.groups {
		c.tokens[user] = rand.Text()
	}
	authority, err := NewAuthority()
	if err != nil {
		return nil, err
	}
	c.ca = authority.pem
	if c.carol, err = authority.IssueClient(string(Carol), readers); err != nil {
		return nil, err
	}
	server, err := authority.IssueServer("kube-apiserver")
	if err != nil {
		return nil, err
	}
	serviceAccountKey, err := newKeyPEM()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.ca)
	c.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots}}}

	for _, file := range []struct {
		path *string
		name string
		data []byte
	}{
		{&c.files.ca, "ca.crt", c.ca},
		{&c.files.serverCert, "kube-apiserver.crt", server.Cert},
		{&c.files.serverKey, "kube-apiserver.key", server.Key},
		{&c.files.serviceAccountKey, "service-account.key", serviceAccountKey},
		{&c.files.tokens, "tokens.csv", c.tokenFile()},
	} {
		*file.path = filepath.Join(dir, file.name)
		if err := os.WriteFile(*file.path, file.data, 0o600); err != nil {
			return nil, fmt.Errorf("cannot write %s: %w", file.name, err)
		}
	}
	return c, nil
}

// tokenFile is kube-apiserver's --token-auth-file: token, name, uid, "groups".
func (c *credentials) tokenFile() []byte {
	var b strings.Builder
	for _, user := range slices.Sorted(maps.Keys(c.tokens)) {
		fmt.Fprintf(&b, "%s,%s,%s,%q\n", c.tokens[user], user, user, strings.Join(c.groups[user], ","))
	}
	return []byte(b.String())
}

// Config returns what a client of kube-apiserver needs to be user, without a limit on its request
// rate. The caller owns it.
func (cp *ControlPlane) Config(user User) *rest.Config {
	config := &rest.Config{
		Host:            cp.URL(),
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: cp.users.ca},
		BearerToken:     cp.users.tokens[user],
	}
	if user == Carol {
		config.CertData, config.KeyData = cp.users.carol.Cert, cp.users.carol.Key
	}
	return config
}

// ServeWith has kube-apiserver show a certificate of another authority from now on. The control
// plane's own clients, and those of configurations that are made from now on, trust both; clients'
// certificates are those of the first still.
func (cp *ControlPlane) ServeWith(authority *Authority) error {
	server, err := authority.IssueServer("kube-apiserver")
	if err != nil {
		return err
	}
	cp.users.ca = slices.Concat(cp.users.ca, authority.pem)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cp.users.ca)
	cp.users.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots}}}
	for name, data := range map[string][]byte{cp.users.files.serverCert: server.Cert,
		cp.users.files.serverKey: server.Key} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return fmt.Errorf("cannot write %s: %w", name, err)
		}
	}
	return nil
}

// CA is the PEM certificate of the authority that signed kube-apiserver's certificate and Carol's.
func (cp *ControlPlane) CA() []byte { return cp.users.ca }
