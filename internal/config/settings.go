// Package config holds the settings of the process: flags, environment variables, configuration
// file, defaults, and what of these fits together.
//
// Invariant: settings that Validate has accepted are known to work as far as the cluster is not
// needed to tell; settings that it refuses are named by one line, where the user made them, with
// the remedy. Values stay text until their flag reads them, so that a value means the same in all
// three places; decoding the file into a struct would guess types and lose lines.
package config

import (
	"io/fs"
	"time"

	"github.com/spf13/pflag"

	"spillway/internal/auth/rbac"
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
	SemanticsNewest   = "newest"   // those of the newest version, whatever upstream's is
	SemanticsUpstream = "upstream" // those of upstream's version and gates, refusals included
)

// Values of --authentication-local-jwks: which tokens are verified here.
const (
	LocalTokensNone    = "none"
	LocalTokensUnbound = string(rbac.TokensUnbound)
	LocalTokensPods    = string(rbac.TokensPods)
)

// Settings is everything that can be configured, one field per flag. After Complete, Validate and
// Divide it is read-only, and its parts are known to fit together; what only the cluster can tell
// (does a resource exist) is found out later.
type Settings struct {
	Kubeconfig string // path; in-cluster configuration when empty
	Semantics  string // SemanticsNewest or SemanticsUpstream

	Resources           []string      // resource[.version][.group], or "*"; each once
	MaxResources        int           // most resources cached on demand by "*"
	ResourceIdleTimeout time.Duration // 0: never
	HistoryBytes        ByteSize      // per resource
	HistoryMinAge       time.Duration
	MaxBackfillWatches  int      // 0: none
	EncodingCacheBytes  ByteSize // over all resources
	MemoryBudget        ByteSize // 0: as much as the control group has
	LeastForms          int64    // what is kept of EncodingCacheBytes when memory is short. Of a memory budget
	FeedBytes           int64    // over all resources; 0: no limit. Of a memory budget
	// of resources on demand, that are on their way at a time; 0: any number. Of a memory budget
	FirstStates        int
	StripManagedFields bool
	StrictResources    bool // a named resource that cannot be mirrored ends the start

	MaxStaleness           time.Duration // 0: nothing is shown while upstream is away
	ConsistencyCheckPeriod time.Duration // 0: never
	ReadyzUpstreamTimeout  time.Duration // 0: never

	Listen             string // host:port on loopback, or unix:///path; off when empty
	ListenOwner        string // of a unix socket: user, user:group or :group
	ListenMode         string // of a unix socket: octal
	ListenIdentity     string // IdentityClient or IdentitySelf
	ListenAllowConnect bool
	AcceptHosts        []string // names without port
	AcceptOrigins      []string // scheme://host[:port]

	ListenTLS         string // host:port; off when empty
	TLSCertFile       string // with TLSPrivateKeyFile, or both empty
	TLSPrivateKeyFile string
	HTTP2             bool

	ClientCAFile string // certificates that vouch for clients; none when empty
	FrontProxy   FrontProxyOptions
	APIAudiences []string // upstream's when empty

	ImpersonationKubeconfig string // path; no user is impersonated when empty
	ImpersonateClientCerts  bool
	ImpersonateDenyGroups   []string

	ReauthorizationInterval time.Duration
	WatchRBAC               bool   // implied by the next two
	LocalRBAC               bool   // allow what roles allow
	LocalTokens             string // LocalTokensNone, LocalTokensUnbound or LocalTokensPods
	InsecureAllowAll        bool

	SidecarDir    string // where a pod's service account is copied to; not a sidecar when empty
	SidecarKeyDir string // with SidecarDir

	StrictTransport []string // directives of Strict-Transport-Security

	MaxConnections        int // of clients; 0: as many as open files allow
	MaxConnectionsPerPeer int // 0: no limit
	Limits                LimitOptions

	StallTimeout time.Duration
	DrainPeriod  time.Duration

	MetricsListen string // host:port; off when empty
	MetricsTLS    bool
	Debug         bool
	LogLevel      string
	LogFormat     string

	Audit   AuditOptions
	Tracing TracingOptions

	ConfigFile string

	// Made of the above by Validate.
	SocketOwner listen.SocketOwner
	SocketMode  fs.FileMode

	origins map[string]origin // flag name -> where its value came from, if not from the command line or the default
	flags   *pflag.FlagSet    // those that it was read from; nil: there were none
}

// defaultSweep keeps what is promised of running watches: a client is sent nothing 30 s after it
// has lost the right to it.
const defaultSweep = 25 * time.Second

// defaultListenMode is listen.PrivateMode as it is written.
const defaultListenMode = "0600"

// New is the defaults.
func New() *Settings {
	return &Settings{
		Semantics:           SemanticsNewest,
		MaxResources:        256,
		ResourceIdleTimeout: time.Hour,
		HistoryBytes:        64 << 20,
		HistoryMinAge:       75 * time.Second,
		MaxBackfillWatches:  64,
		EncodingCacheBytes:  256 << 20,

		MaxStaleness:           time.Hour,
		ConsistencyCheckPeriod: 10 * time.Minute,

		Listen:                  "127.0.0.1:8001",
		ListenMode:              defaultListenMode,
		SocketOwner:             listen.KeepOwner,
		SocketMode:              listen.PrivateMode,
		ListenIdentity:          IdentityClient,
		HTTP2:                   true,
		ReauthorizationInterval: defaultSweep,
		LocalTokens:             LocalTokensNone,

		ImpersonateDenyGroups: []string{"system:masters"},
		FrontProxy: FrontProxyOptions{
			NameHeaders: []string{"X-Remote-User"}, UIDHeaders: []string{"X-Remote-Uid"},
			GroupHeaders:  []string{"X-Remote-Group"},
			ExtraPrefixes: []string{"X-Remote-Extra-"},
		},
		Limits:        newLimitOptions(),
		StallTimeout:  30 * time.Second,
		DrainPeriod:   10 * time.Second,
		MetricsListen: "127.0.0.1:9464",
		LogLevel:      "info",
		LogFormat:     "json",
		Audit:         newAuditOptions(),
		origins:       map[string]origin{},
	}
}

// AsksAboutAll reports that upstream reviews every client, so that none is served while it does not
// answer.
func (o *Settings) AsksAboutAll() bool {
	return !o.InsecureAllowAll && (o.Listen == "" || o.ListenIdentity != IdentitySelf)
}
