package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"spillway/internal/rotation"
)

// trust is the authorities that may vouch for upstream's certificate, and the file that names them.
type trust struct {
	*rotation.Authorities
	file string
}

// certificate is what the proxy shows upstream.
type certificate = tls.Certificate

// inline stands for the file of what is written in a configuration that did not come from a file.
const inline = "(inline)"

func hasCA(c *rest.Config) bool { return len(c.CAData) > 0 || c.CAFile != "" }

func hasPair(c *rest.Config) bool {
	return (len(c.CertData) > 0 || c.CertFile != "") && (len(c.KeyData) > 0 || c.KeyFile != "")
}

func hasToken(c *rest.Config) bool { return c.BearerToken != "" || c.BearerTokenFile != "" }

// followKubeconfig follows a kubeconfig. Of one that leads elsewhere by now, or takes another kind
// of credentials, nothing is taken: which server they are shown to is decided once.
func followKubeconfig(source ConfigSource, log *zap.Logger) (*rotation.Value[*rest.Config], error) {
	first := source.Config
	parse := func([]rotation.Part) (*rest.Config, time.Time, error) {
		cfg, err := source.Again()
		switch {
		case err != nil:
			return nil, time.Time{}, err
		case cfg.Host != first.Host || cfg.APIPath != first.APIPath || cfg.ServerName != first.ServerName ||
			cfg.Insecure != first.Insecure:
			return nil, time.Time{}, errors.New("the server, or how it is verified, is another one: restart to go there")
		case hasCA(cfg) != hasCA(first) || hasPair(cfg) != hasPair(first) || hasToken(cfg) != hasToken(first) ||
			cfg.Username != first.Username || (cfg.ExecProvider == nil) != (first.ExecProvider == nil) ||
			(cfg.AuthProvider == nil) != (first.AuthProvider == nil):
			return nil, time.Time{}, errors.New("it has credentials of another kind, or lacks what it had: restart to use them")
		}
		return cfg, time.Time{}, nil
	}
	return rotation.New(rotation.Options[*rest.Config]{
		Use: "kubeconfig", Read: rotation.Files(source.File), Parse: parse, Log: log,
	})
}

// config is the configuration as the kubeconfig has it now.
func (f *Factory) config() *rest.Config {
	if f.source != nil {
		return f.source.Get()
	}
	return f.base
}

// part is what a configuration holds, or names a file of.
func (f *Factory) part(data []byte, file string) (rotation.Part, error) {
	if len(data) > 0 {
		if f.file == "" {
			return rotation.Part{File: inline, Text: data}, nil
		}
		return rotation.Part{File: f.file, Text: data}, nil
	}
	text, err := os.ReadFile(file) // #nosec G304 -- the operator names it
	return rotation.Part{File: file, Text: text}, err
}

func (f *Factory) readTrust() ([]rotation.Part, error) {
	cfg := f.config()
	ca, err := f.part(cfg.CAData, cfg.CAFile)
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
	cert, err := f.part(cfg.CertData, cfg.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := f.part(cfg.KeyData, cfg.KeyFile)
	return []rotation.Part{cert, key}, err
}

func parsePair(parts []rotation.Part) (*certificate, time.Time, error) {
	return rotation.ParsePair(parts[0].Text, parts[1].Text)
}

// readToken reads the token. A file comes before what is inline, as in client-go.
func (f *Factory) readToken() ([]rotation.Part, error) {
	cfg := f.config()
	inline := []byte(cfg.BearerToken)
	if cfg.BearerTokenFile != "" {
		inline = nil
	}
	token, err := f.part(inline, cfg.BearerTokenFile)
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

// UntrustedError says that upstream's certificate is not good, and by which authorities.
type UntrustedError struct {
	CA  string // the file; "": the system's
	Err error
}

// Error implements error.
func (e *UntrustedError) Error() string {
	ca := e.CA
	if ca == "" {
		ca = "the system's certificates"
	}
	return fmt.Sprintf("the apiserver's certificate is not trusted, by %s: %s", ca, e.Err)
}

// Unwrap is what crypto/tls said.
func (e *UntrustedError) Unwrap() error { return e.Err }
