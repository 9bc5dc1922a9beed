package transport

import (
	"context"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"spillway/internal/rotation"
)

// lookInterval is how late a rotated file is noticed at most. A certificate that is not trusted,
// and credentials that are not accepted, have the files looked at in between.
const lookInterval = 10 * time.Second

// refusedInterval is how often the files of credentials that are not accepted are looked at.
const refusedInterval = time.Second

// Factory makes all transports to one upstream under one identity; As makes one for another
// identity. All of them share what is found out about upstream's addresses. All follow files: of
// authorities, certificates and tokens, and the kubeconfig itself, whose inline certificates and
// tokens are followed as files are.
//
// client-go's own transports follow files, too, but each by itself: they look every five minutes,
// share caches that nothing here controls, and end every connection, watches included, when a
// client certificate is renewed.
type Factory struct {
	shared                *shared
	base                  *rest.Config                  // as it was read first
	kubeconfig            *rotation.Value[*rest.Config] // nil: there is none
	credentials           string                        // names them in messages
	clusterFile, userFile string                        // the kubeconfigs of what is inline; "": there is none
	trust                 *rotation.Value[*trust]       // nil: no authority is named
	pair                  *rotation.Value[*certificate] // nil: there is no client certificate that is followed
	token                 *rotation.Value[string]       // nil: there is no token
	plugin                *plugin                       // nil: no plugin supplies credentials
}

// New reads the files that a configuration names. It connects to nothing.
func New(source ConfigSource, log *zap.Logger) (*Factory, error) {
	f := &Factory{shared: newShared(log)}
	if err := f.followSource(source); err != nil {
		return nil, err
	}
	if err := f.followTrust(); err != nil {
		return nil, err
	}
	return f, f.followCredentials()
}

// As makes transports to the same upstream, which trust the same certificates, with the credentials
// of another source. Nothing else of that source counts.
func (f *Factory) As(who ConfigSource) (*Factory, error) {
	other := &Factory{shared: f.shared, trust: f.trust}
	if reload := who.Reload; reload != nil {
		who.Reload = func() (*rest.Config, error) {
			cfg, err := reload()
			if err != nil {
				return nil, err
			}
			return withIdentity(f.base, cfg), nil
		}
	}
	who.Config = withIdentity(f.base, who.Config)
	if err := other.followSource(who); err != nil {
		return nil, err
	}
	return other, other.followCredentials()
}

// withIdentity is the upstream of one configuration, with the credentials of another.
func withIdentity(where, who *rest.Config) *rest.Config {
	cfg := rest.AnonymousClientConfig(where)
	cfg.Username, cfg.Password = who.Username, who.Password
	cfg.BearerToken, cfg.BearerTokenFile = who.BearerToken, who.BearerTokenFile
	cfg.AuthProvider, cfg.AuthConfigPersister = who.AuthProvider, who.AuthConfigPersister
	cfg.ExecProvider = who.ExecProvider
	cfg.CertFile, cfg.CertData, cfg.KeyFile, cfg.KeyData = who.CertFile, who.CertData, who.KeyFile, who.KeyData
	return cfg
}

// withDefaults is cfg as everything under the proxy's own credentials uses it.
func withDefaults(cfg *rest.Config) *rest.Config {
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

// Config is where upstream is and under which identity, for clients that send by a transport of the
// Factory's. The caller must not change it.
func (f *Factory) Config() *rest.Config { return f.base }

// Credentials names the credentials in a message.
func (f *Factory) Credentials() string { return f.credentials }

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

// refreshTrust looks at the file of authorities.
func (f *Factory) refreshTrust() {
	if f.trust != nil && f.trust.Look() {
		f.shared.inUse.closeIdle()
	}
}

// refreshCredentials looks at the files of the credentials, each once in refusedInterval.
func (f *Factory) refreshCredentials() {
	if f.kubeconfig != nil {
		f.kubeconfig.Recent(refusedInterval)
	}
	if f.token != nil {
		f.token.Recent(refusedInterval)
	}
	if f.pair != nil {
		f.pair.Recent(refusedInterval)
	}
}

// CredentialTrouble is why the proxy's own credentials cannot be had at present, and since when;
// nil: they can, or nothing is known of it.
func (f *Factory) CredentialTrouble() (since time.Time, err error) {
	if f.plugin == nil {
		return time.Time{}, nil
	}
	return f.plugin.currentTrouble()
}

// Files is how the files stand that the transports of all identities follow.
func (f *Factory) Files() []rotation.FileState {
	var all []rotation.FileState
	for _, v := range f.shared.followed() {
		all = append(all, v.States()...)
	}
	return all
}
