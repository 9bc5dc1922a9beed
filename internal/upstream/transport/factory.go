// Package transport makes everything that connects to one upstream, and keeps it in step with the
// files that say which authorities to trust there and which credentials to show.
package transport

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"
	"weak"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"spillway/internal/rotation"
)

// lookInterval is how late a rotated file is noticed at most. A certificate that is not trusted,
// and credentials that are not accepted, have the files looked at in between.
const lookInterval = 10 * time.Second

// ConfigSource is a client's configuration, and where it came from.
type ConfigSource struct {
	Config *rest.Config
	// File is the kubeconfig that Config was read from, and Again reads it once more. Empty and
	// nil: there is none.
	File  string
	Again func() (*rest.Config, error)
}

// Factory makes all transports to one upstream under one identity; As makes them under others. What
// one of them finds out about an address of upstream's is known to all, and all follow the same
// files: of authorities, certificates and tokens, and the kubeconfig itself, whose inline
// certificates and tokens are followed as files are. Requests under way and watches keep their
// connections when a file changes; new requests get new ones.
//
// client-go's own transports follow files, too, but each by itself: they look every five minutes,
// share caches that nothing here controls, and end every connection, watches included, when a
// client certificate is renewed.
type Factory struct {
	shared *sharedSettings
	base   *rest.Config                  // as it was read first
	source *rotation.Value[*rest.Config] // nil: there is no kubeconfig
	file   string                        // the kubeconfig's; "": there is none
	trust  *rotation.Value[*trust]       // nil: no authority is named
	pair   *rotation.Value[*certificate] // nil: there is no client certificate that is followed
	token  *rotation.Value[string]       // nil: there is no token
	plugin *plugin                       // nil: no plugin supplies credentials
}

// sharedSettings is what the transports of all identities at one upstream have in common.
type sharedSettings struct {
	dialer *dialer
	log    *zap.Logger

	mu      sync.Mutex
	values  []followed
	retired []weak.Pointer[http.Transport] // which some requests may still use
}

// followed is a rotation.Value, whatever it is of.
type followed interface {
	Look() bool
	States() []rotation.FileState
}

// New reads the files that a configuration names. It connects to nothing.
func New(source ConfigSource, log *zap.Logger) (*Factory, error) {
	f := &Factory{shared: &sharedSettings{dialer: newDialer(), log: log}}
	if err := f.follow(source); err != nil {
		return nil, err
	}
	var err error
	if f.trust, err = f.followTrust(); err != nil {
		return nil, err
	}
	return f, f.followCredentials()
}

// As makes transports to the same upstream, which trust the same certificates, with the credentials
// of another source. Nothing else of it counts: its credentials are shown to nothing but this
// upstream.
func (f *Factory) As(who ConfigSource) (*Factory, error) {
	other := &Factory{shared: f.shared, trust: f.trust}
	where := f.base
	narrow := func(who *rest.Config) *rest.Config { return withIdentity(where, who) }
	again := who.Again
	if again != nil {
		who.Again = func() (*rest.Config, error) {
			cfg, err := again()
			if err != nil {
				return nil, err
			}
			return narrow(cfg), nil
		}
	}
	who.Config = narrow(who.Config)
	if err := other.follow(who); err != nil {
		return nil, err
	}
	return other, other.followCredentials()
}

// withIdentity is the upstream of where, with the credentials of the other configuration.
func withIdentity(where, who *rest.Config) *rest.Config {
	cfg := rest.AnonymousClientConfig(where)
	cfg.Username, cfg.Password = who.Username, who.Password
	cfg.BearerToken, cfg.BearerTokenFile = who.BearerToken, who.BearerTokenFile
	cfg.AuthProvider, cfg.AuthConfigPersister = who.AuthProvider, who.AuthConfigPersister
	cfg.ExecProvider = who.ExecProvider
	cfg.CertFile, cfg.CertData, cfg.KeyFile, cfg.KeyData = who.CertFile, who.CertData, who.KeyFile, who.KeyData
	return cfg
}

// Config is where upstream is and under which identity, for clients that send by a transport of the
// Factory's. The caller must not change it.
func (f *Factory) Config() *rest.Config { return f.base }

// follow begins to follow the kubeconfig.
func (f *Factory) follow(source ConfigSource) error {
	f.base, f.file = ownConfig(source.Config), source.File
	f.plugin = newPlugin(f.base, f.shared.log)
	if source.Again == nil {
		return nil
	}
	var err error
	f.source, err = followKubeconfig(source, f.shared.log)
	if err == nil {
		f.shared.add(f.source)
	}
	return err
}

// ownConfig is cfg as everything under the proxy's own credentials uses it.
func ownConfig(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = "spillway/" + buildVersion()
	}
	cfg.QPS = -1    // reflectors are few; upstream has priority and fairness
	cfg.Timeout = 0 // it would end watches
	return cfg
}

// buildVersion is the version that the binary was built as.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

func (f *Factory) followTrust() (*rotation.Value[*trust], error) {
	if f.base.Insecure && hasCA(f.base) {
		return nil, errors.New("specifying a root certificates file with the insecure flag is not allowed")
	}
	if !hasCA(f.base) {
		return nil, nil
	}
	return add(f.shared, rotation.Options[*trust]{
		Use: "the apiserver's certificate authority", Read: f.readTrust, Parse: parseTrust, Log: f.shared.log,
	})
}

func (f *Factory) followCredentials() (err error) {
	if hasPair(f.base) {
		f.pair, err = add(f.shared, rotation.Options[*certificate]{
			Use: "client certificate", Read: f.readPair, Parse: parsePair, Log: f.shared.log,
		})
	}
	if err == nil && hasToken(f.base) {
		if f.base.Username != "" {
			return errors.New("username/password or bearer token may be set, but not both")
		}
		f.token, err = add(f.shared, rotation.Options[string]{
			Use: "token", Read: f.readToken, Parse: parseToken, Log: f.shared.log,
		})
	}
	return err
}

// add begins to follow files.
func add[T any](s *sharedSettings, o rotation.Options[T]) (*rotation.Value[T], error) {
	v, err := rotation.New(o)
	if err != nil {
		return nil, err
	}
	s.add(v)
	return v, nil
}

func (s *sharedSettings) add(v followed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values, v)
}

// Run looks at the files until ctx ends.
func (f *Factory) Run(ctx context.Context) error {
	ticks := time.NewTicker(lookInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
			f.shared.look()
		}
	}
}

// look looks at all files. When something changed, connections that are idle are closed: they were
// made by what was there before. Those of transports that were replaced are closed whenever they
// are idle.
func (s *sharedSettings) look() (changed bool) {
	s.mu.Lock()
	values := slices.Clone(s.values)
	s.mu.Unlock()
	for _, v := range values {
		changed = v.Look() || changed
	}
	if changed {
		s.dialer.unresponsive.closeIdle()
	}
	s.mu.Lock()
	s.retired = slices.DeleteFunc(s.retired, func(p weak.Pointer[http.Transport]) bool { return p.Value() == nil })
	retired := slices.Clone(s.retired)
	s.mu.Unlock()
	for _, p := range retired {
		if t := p.Value(); t != nil {
			t.CloseIdleConnections()
		}
	}
	return changed
}

// retire is for a transport that another one has replaced.
func (s *sharedSettings) retire(t *http.Transport) {
	t.CloseIdleConnections()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = append(s.retired, weak.Make(t))
}

// Files is how the files stand that the transports of all identities follow.
func (f *Factory) Files() []rotation.FileState {
	f.shared.mu.Lock()
	values := slices.Clone(f.shared.values)
	f.shared.mu.Unlock()
	var all []rotation.FileState
	for _, v := range values {
		all = append(all, v.States()...)
	}
	return all
}

// inline stands for the file of what is written in a configuration that did not come from a file.
const inline = "(inline)"

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
	text, err := rotation.ReadFile(file)
	return rotation.Part{File: file, Text: text}, err
}

func (f *Factory) readTrust() ([]rotation.Part, error) {
	cfg := f.config()
	ca, err := f.part(cfg.CAData, cfg.CAFile)
	return []rotation.Part{ca}, err
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
