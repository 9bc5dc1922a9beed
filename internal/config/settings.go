// Package config holds the settings of the process: flags, environment variables, configuration
// file, defaults, and which of them can be used together. All are made from one table (table.go).
//
// Invariant: settings that Validate has accepted work, as far as that can be known without the
// cluster and the contents of files. An error is one line that names the setting where the user
// made it, with the remedy. Values stay text until their flag reads them, so that a value means the
// same in all three places.
package config

import (
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"spillway/internal/listen"
)

// Values of --listen-identity: whose rights a request on the plain listener has.
const (
	IdentityClient = "client" // the client's own credentials, forwarded
	IdentitySelf   = "self"   // the proxy's, for requests without Authorization
	// the client's, which must be the service account of the proxy itself: a container of the same pod
	IdentityPodToken = "pod-token"
)

// Values of --semantics: whose answers requests get where versions of Kubernetes differ.
const (
	SemanticsNewest   = "newest"   // the newest version's, whatever upstream's is
	SemanticsUpstream = "upstream" // upstream's version's and gates', refusals included
)

// Values of --authentication-local-jwks: which tokens the proxy verifies itself. They are those of
// rbac.TokenMode.
const (
	LocalTokensNone    = "none"
	LocalTokensUnbound = "unbound"
	LocalTokensPods    = "pods"
)

// Settings is everything that can be configured: a field for each row of table, which describes it.
// After Complete, Validate and ApplyBudget, in this order, it is read-only. Only the cluster knows
// some things, such as whether a resource exists.
type Settings struct {
	Kubeconfig, Semantics                                       string
	MaxStaleness, ReadyzUpstreamTimeout, ConsistencyCheckPeriod time.Duration

	Resources                                      []string // each once
	StrictResources, StripManagedFields            bool
	MaxResources, MaxBackfillWatches               int
	ResourceIdleTimeout, HistoryMinAge             time.Duration
	HistoryBytes, EncodingCacheBytes, MemoryBudget ByteSize

	Listen, ListenOwner, ListenMode, ListenIdentity string
	ListenAllowConnect                              bool
	AcceptHosts, AcceptOrigins                      []string

	ListenTLS, TLSCertFile, TLSPrivateKeyFile string
	StrictTransport                           []string
	HTTP2                                     bool
	SidecarDir, SidecarKeyDir                 string

	APIAudiences            []string
	ReauthorizationInterval time.Duration
	WatchRBAC, LocalRBAC    bool
	LocalTokens             string

	ClientCAFile, FrontProxyCAFile                                      string
	FrontProxyNames                                                     []string
	FrontProxyNameHeaders, FrontProxyUIDHeaders, FrontProxyGroupHeaders []string
	FrontProxyExtraPrefixes, ImpersonateDenyGroups                      []string
	ImpersonationKubeconfig                                             string
	ImpersonateClientCerts, InsecureAllowAll                            bool

	MaxConnections, MaxConnectionsPerPeer int
	Limits                                LimitOptions
	StallTimeout, DrainPeriod             time.Duration

	MetricsListen                          string
	MetricsTLS, Debug                      bool
	LogLevel, LogFormat, TracingConfigFile string

	AuditPolicyFile, AuditLogPath                       string
	AuditLogMaxSize, AuditLogMaxAge, AuditLogMaxBackups int
	AuditLogCompress, AuditFailClosed                   bool

	ConfigFile string

	// By Validate, from ListenOwner and ListenMode.
	SocketOwner listen.SocketOwner
	SocketMode  fs.FileMode

	// By ApplyBudget, from a memory budget.
	MinEncodingCacheBytes int64 // what is kept of EncodingCacheBytes when memory is short
	FeedBytes             int64 // of the feeds of all resources; 0: no limit
	FirstStates           int   // how many resources on demand are listed at a time; 0: no limit

	rows    []*setting
	groups  []FlagGroup
	flags   *pflag.FlagSet    // of all rows
	origins map[string]origin // by flag; without one, the value is of the command line or the default
}

// LimitOptions are how much clients may request at a time; 0 is no limit.
type LimitOptions struct {
	Watches, WatchesPerUser         int
	WatchesReserve                  int // while so many are free, a user may have more than WatchesPerUser; 0: never
	ListBytes, HeaderBytes          ByteSize
	BodyBytes                       int64 // by ApplyBudget
	PassThrough, PassThroughPerUser int
	SelectorTerms                   int // by ApplyBudget; 0: what selectorUsers may have
	SelectorTermsPerUser            int
	QPSPerUser                      float64
	BurstPerUser                    int // 0: two seconds' worth
}

// FlagGroup is a heading of --help and the flags under it.
type FlagGroup struct {
	Name  string
	Flags *pflag.FlagSet
}

// New returns the defaults.
func New() *Settings {
	o := &Settings{
		SocketOwner: listen.KeepOwner, SocketMode: listen.PrivateMode, origins: map[string]origin{}, flags: newFlagSet(),
	}
	for _, g := range o.table() {
		flags := newFlagSet()
		for _, s := range g.rows {
			s.declare(flags)
		}
		o.flags.AddFlagSet(flags)
		o.groups, o.rows = append(o.groups, FlagGroup{g.name, flags}), append(o.rows, g.rows...)
	}
	return o
}

func newFlagSet() *pflag.FlagSet {
	flags := pflag.NewFlagSet("spillway", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() {}
	return flags
}

// NamesOf returns the environment variable of a flag, and its key in the configuration file. They
// are empty if the flag is no setting, and so is the key of a setting that the file cannot have.
func (o *Settings) NamesOf(flag string) (variable, key string) {
	s := o.row(flag)
	if s == nil {
		return "", ""
	}
	return s.variable(), s.key()
}

// FlagGroups are all flags, bound to o's fields. Parse them, then call Complete.
func (o *Settings) FlagGroups() []FlagGroup { return o.groups }

// AsksAboutAll reports that upstream reviews every client, so that none is served while upstream
// does not answer.
func (o *Settings) AsksAboutAll() bool {
	return !o.InsecureAllowAll && (o.Listen == "" || o.ListenIdentity != IdentitySelf)
}

// WatchesRights reports that Roles and their bindings have to be watched.
func (o *Settings) WatchesRights() bool {
	return o.WatchRBAC || o.LocalRBAC || o.LocalTokens != LocalTokensNone
}

// NamedResources are the resources of --resources, and whether AllResources is among them.
func (o *Settings) NamedResources() (named []string, all bool) {
	named = slices.DeleteFunc(slices.Clone(o.Resources), func(name string) bool { return name == AllResources })
	return named, len(named) < len(o.Resources)
}

// selectorUsers is how many users may have the selector terms of one user at the same time.
const selectorUsers = 8

// Burst is how many requests of a user pass through at once before the rate applies.
func (l LimitOptions) Burst() int {
	if l.BurstPerUser == 0 {
		return max(1, int(2*l.QPSPerUser))
	}
	return l.BurstPerUser
}

// AllSelectorTerms is how many terms the selectors of all users together may have.
func (l LimitOptions) AllSelectorTerms() int {
	terms := selectorUsers * l.SelectorTermsPerUser
	if l.SelectorTerms > 0 {
		terms = min(terms, max(l.SelectorTerms, l.SelectorTermsPerUser))
	}
	return terms
}
