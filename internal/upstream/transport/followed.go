package transport

import (
	"cmp"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"spillway/internal/rotation"
)

// inline stands for the file of what is written in a configuration that did not come from a file.
const inline = "(inline)"

// trust is the authorities that may vouch for upstream's certificate, and the file that names them.
type trust struct {
	*rotation.Authorities
	file string
}

// certificate is what the proxy shows upstream.
type certificate = tls.Certificate

func hasCA(c *rest.Config) bool { return len(c.CAData) > 0 || c.CAFile != "" }

func hasPair(c *rest.Config) bool {
	return (len(c.CertData) > 0 || c.CertFile != "") && (len(c.KeyData) > 0 || c.KeyFile != "")
}

func hasToken(c *rest.Config) bool { return c.BearerToken != "" || c.BearerTokenFile != "" }

// hasStaticCredentials reports that client-go runs no exec plugin for a configuration.
func hasStaticCredentials(c *rest.Config) bool { return hasToken(c) || c.Username != "" || hasPair(c) }

// followSource takes the configuration, and begins to follow the kubeconfig that it is from.
func (f *Factory) followSource(source ConfigSource) (err error) {
	f.base, f.clusterFile, f.userFile = withDefaults(source.Config), source.ClusterFile, source.UserFile
	f.credentials = source.Credentials()
	f.plugin = newPlugin(f.base, f.shared.log)
	if source.Reload == nil {
		return nil
	}
	parse := func([]rotation.Part) (*rest.Config, time.Time, error) {
		cfg, err := source.Reload()
		if err == nil {
			err = checkReload(source.Config, cfg)
		}
		if err != nil {
			return nil, time.Time{}, err
		}
		return cfg, time.Time{}, nil
	}
	f.kubeconfig, err = follow(f.shared, rotation.Options[*rest.Config]{
		Use: "kubeconfig", Read: rotation.Files(source.Files...), Parse: parse,
	})
	return err
}

// checkReload refuses a kubeconfig that leads elsewhere by now, or takes another kind of
// credentials: which server they are shown to is decided once.
func checkReload(first, now *rest.Config) error {
	switch {
	case now.Host != first.Host || now.APIPath != first.APIPath || now.ServerName != first.ServerName ||
		now.Insecure != first.Insecure:
		return errors.New("the server, or how it is verified, is another one: restart to go there")
	case hasCA(now) != hasCA(first) || hasPair(now) != hasPair(first) || hasToken(now) != hasToken(first) ||
		now.Username != first.Username || (now.ExecProvider == nil) != (first.ExecProvider == nil) ||
		(now.AuthProvider == nil) != (first.AuthProvider == nil):
		return errors.New("it has credentials of another kind, or lacks what it had: restart to use them")
	}
	return nil
}

func (f *Factory) followTrust() (err error) {
	if !hasCA(f.base) {
		return nil
	}
	if f.base.Insecure {
		return errors.New("specifying a root certificates file with the insecure flag is not allowed")
	}
	f.trust, err = follow(f.shared, rotation.Options[*trust]{
		Use: "the API server's certificate authority", Read: f.readTrust, Parse: parseTrust,
	})
	return err
}

func (f *Factory) followCredentials() (err error) {
	if hasPair(f.base) {
		f.pair, err = follow(f.shared, rotation.Options[*certificate]{
			Use: "client certificate", Read: f.readPair, Parse: parsePair,
		})
	}
	if err != nil || !hasToken(f.base) {
		return err
	}
	if f.base.Username != "" {
		return errors.New("username/password or bearer token may be set, but not both")
	}
	f.token, err = follow(f.shared, rotation.Options[string]{Use: "token", Read: f.readToken, Parse: parseToken})
	return err
}

// config is the configuration as the kubeconfig has it now.
func (f *Factory) config() *rest.Config {
	if f.kubeconfig != nil {
		return f.kubeconfig.Get()
	}
	return f.base
}

// part is the data that a configuration holds, which is from a kubeconfig, or else the content of
// the file that it names.
func (f *Factory) part(data []byte, kubeconfig, file string) (rotation.Part, error) {
	if len(data) == 0 {
		text, err := rotation.ReadFile(file)
		return rotation.Part{File: file, Text: text}, err
	}
	return rotation.Part{File: cmp.Or(kubeconfig, inline), Text: data}, nil
}

func (f *Factory) readTrust() ([]rotation.Part, error) {
	cfg := f.config()
	ca, err := f.part(cfg.CAData, f.clusterFile, cfg.CAFile)
	return []rotation.Part{ca}, err
}

func parseTrust(parts []rotation.Part) (*trust, time.Time, error) {
	roots, expires, err := rotation.ParseRoots(parts[0].Text)
	if err != nil {
		return nil, time.Time{}, err
	}
	return &trust{Authorities: roots, file: parts[0].File}, expires, nil
}

func (f *Factory) readPair() ([]rotation.Part, error) {
	cfg := f.config()
	cert, err := f.part(cfg.CertData, f.userFile, cfg.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := f.part(cfg.KeyData, f.userFile, cfg.KeyFile)
	return []rotation.Part{cert, key}, err
}

func parsePair(parts []rotation.Part) (*certificate, time.Time, error) {
	return rotation.ParsePair(parts[0].Text, parts[1].Text)
}

// readToken reads the token. A file takes precedence over what is inline, as in client-go.
func (f *Factory) readToken() ([]rotation.Part, error) {
	cfg := f.config()
	data := []byte(cfg.BearerToken)
	if cfg.BearerTokenFile != "" {
		data = nil
	}
	token, err := f.part(data, f.userFile, cfg.BearerTokenFile)
	return []rotation.Part{token}, err
}

func parseToken(parts []rotation.Part) (string, time.Time, error) {
	token := strings.TrimSpace(string(parts[0].Text))
	switch {
	case token == "":
		return "", time.Time{}, errors.New("it is empty")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "", time.Time{}, errors.New("it is more than a word, which no header can carry")
	}
	return token, time.Time{}, nil
}
