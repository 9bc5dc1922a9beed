package main

import (
	"io/fs"
	"time"

	"github.com/spf13/pflag"

	"spillway/internal/auth"
	"spillway/internal/listen"
	"spillway/internal/logging"
)

// Values of --plain-identity: whose rights a request on the plain listener has.
const (
	identityClient = "client" // the client's own credentials, forwarded
	identitySelf   = "self"   // the proxy's, for requests without Authorization
	// the client's, which must be the service account of the proxy itself: a container of the same pod
	identityPodToken = "pod-token"
)

// Values of --authentication-local-jwks: which tokens are verified here.
const (
	localTokensNone    = "none"
	localTokensUnbound = string(auth.TokensUnbound)
	localTokensPods    = string(auth.TokensPods)
)

// Values of --writers: who sends watches to their clients.
const (
	writersAuto = "auto" // a few writers, where there can be any
	writersOn   = "on"   // likewise, or no start
	writersOff  = "off"  // a goroutine for each
)

// options is everything that can be configured, one field per flag. After complete and validate it is read-only, and its parts are
// known to fit together; what only the cluster can tell (does a resource exist) is found out later.
type options struct {
	kubeconfig string // path; in-cluster configuration when empty

	resources           []string      // resource[.version][.group], or "*"; each once
	maxResources        int           // most resources cached on demand by "*"
	resourceIdleTimeout time.Duration // 0: never
	historyBytes        byteSize      // per resource
	historyMinAge       time.Duration
	backfillWatches     int      // 0: none
	encodedBytes        byteSize // over all resources
	memoryBudget        byteSize // 0: as much as the control group has
	leastForms          int64    // what is kept of encodedBytes when memory is short. Of a memory budget
	feedBytes           int64    // over all resources; 0: no limit. Of a memory budget
	firstStates         int      // of resources on demand, that are on their way at a time; 0: any number. Of a memory budget
	stripManagedFields  bool
	strictResources     bool // a named resource that cannot be mirrored ends the start

	maxStaleness           time.Duration // 0: nothing is shown while upstream is away
	consistencyCheckPeriod time.Duration // 0: never
	unreadyWhenAway        time.Duration // 0: never

	listen           string // host:port on loopback, or unix:///path; off when empty
	listenOwner      string // of a unix socket: user, user:group or :group
	listenMode       string // of a unix socket: octal
	plainIdentity    string // identityClient or identitySelf
	plainSelfConnect bool
	acceptHosts      []string // names without port
	acceptOrigins    []string // scheme://host[:port]

	listenTLS         string // host:port; off when empty
	tlsCertFile       string // with tlsPrivateKeyFile, or both empty
	tlsPrivateKeyFile string
	http2             bool

	clientCAFile string // certificates that vouch for clients; none when empty
	frontProxy   frontProxy
	apiAudiences []string // upstream's when empty

	impersonationKubeconfig string // path; nobody is impersonated when empty
	impersonateClientCerts  bool
	impersonateDenyGroups   []string

	reauthSweep      time.Duration
	watchRights      bool   // implied by the next two
	localRBAC        bool   // allow what roles allow
	localTokens      string // localTokensNone, localTokensUnbound or localTokensPods
	insecureAllowAll bool

	sidecarDir    string // where a pod's service account is copied to; not a sidecar when empty
	sidecarKeyDir string // with sidecarDir

	strictTransport []string // directives of Strict-Transport-Security

	maxConnections        int // of clients; 0: as many as open files allow
	maxConnectionsPerPeer int // 0: no limit
	limits                limitOptions

	writers      string // writersAuto, writersOn or writersOff
	stallTimeout time.Duration
	drainPeriod  time.Duration

	metricsListen string // host:port; off when empty
	metricsTLS    bool
	debug         bool
	logLevel      string
	logFormat     string

	audit   auditOptions
	tracing tracingOptions

	configFile string

	// Made of the above by validate.
	socketOwner listen.SocketOwner
	socketMode  fs.FileMode

	origins map[string]origin // flag name -> where its value came from, if not from the command line or the default
	flags   *pflag.FlagSet    // those that it was read from; nil: there were none
}

// defaultSweep keeps what is promised of running watches: nobody is sent anything 30 s after he may not have it any more.
const defaultSweep = 25 * time.Second

// defaultListenMode is listen.PrivateMode as it is written.
const defaultListenMode = "0600"

func newOptions() *options {
	return &options{
		maxResources:        256,
		resourceIdleTimeout: time.Hour,
		historyBytes:        64 << 20,
		historyMinAge:       75 * time.Second,
		backfillWatches:     64,
		encodedBytes:        256 << 20,

		maxStaleness:           time.Hour,
		consistencyCheckPeriod: 10 * time.Minute,

		listen:        "127.0.0.1:8001",
		listenMode:    defaultListenMode,
		socketOwner:   listen.KeepOwner,
		socketMode:    listen.PrivateMode,
		plainIdentity: identityClient,
		http2:         true,
		reauthSweep:   defaultSweep,
		localTokens:   localTokensNone,

		impersonateDenyGroups: []string{"system:masters"},
		frontProxy: frontProxy{
			nameHeaders: []string{"X-Remote-User"}, uidHeaders: []string{"X-Remote-Uid"}, groupHeaders: []string{"X-Remote-Group"},
			extraPrefixes: []string{"X-Remote-Extra-"},
		},
		limits:        newLimitOptions(),
		writers:       writersAuto,
		stallTimeout:  30 * time.Second,
		drainPeriod:   10 * time.Second,
		metricsListen: "127.0.0.1:9464",
		logLevel:      "info",
		logFormat:     "json",
		audit:         newAuditOptions(),
		origins:       map[string]origin{},
	}
}

// flagGroup is a heading of --help and the flags under it.
type flagGroup struct {
	name  string
	flags *pflag.FlagSet
}

// flagGroups declares all flags, bound to o's fields, whose present values are the defaults.
func (o *options) flagGroups() []flagGroup {
	return []flagGroup{
		o.group("Upstream", o.upstreamFlags),
		o.group("Cache", o.cacheFlags),
		o.group("Plain listener (HTTP, this machine only)", o.plainFlags),
		o.group("TLS listener", o.tlsFlags),
		o.group("As a sidecar", o.sidecarFlags),
		o.group("Who may read what", o.accessFlags),
		o.group("Limits of clients", o.limitFlags, o.requestLimitFlags),
		o.group("Streams", o.streamFlags),
		o.group("Observability", o.observabilityFlags, o.tracing.flags),
		o.group("Audit log", o.audit.flags),
		o.group("Configuration", o.configurationFlags),
	}
}

// flagSet is all flags of flagGroups.
func (o *options) flagSet() *pflag.FlagSet {
	flags := pflag.NewFlagSet("spillway", pflag.ContinueOnError)
	flags.Usage = func() {}
	for _, g := range o.flagGroups() {
		flags.AddFlagSet(g.flags)
	}
	return flags
}

// asksAboutAll reports that the API server is asked about every client, so that none is served
// while it does not answer.
func (o *options) asksAboutAll() bool {
	return !o.insecureAllowAll && (o.listen == "" || o.plainIdentity != identitySelf)
}

// given reports that a flag was set, wherever.
func (o *options) given(flag string) bool { return o.flags != nil && o.flags.Changed(flag) }

func (o *options) group(name string, declare ...func(*pflag.FlagSet)) flagGroup {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	for _, d := range declare {
		d(fs)
	}
	return flagGroup{name: name, flags: fs}
}

func (o *options) upstreamFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"Reach the API server as the current context of this `file` says. When empty, use the service account of the pod spillway runs in.")
	fs.DurationVar(&o.maxStaleness, "max-staleness", o.maxStaleness,
		"While the API server cannot be reached, go on answering requests that take a state of any age (resourceVersion=0 and the like) from the last one "+
			"known, for this `duration`, with its age in the header Age. All else fails as it would at the API server. 0s answers nothing then.")
	fs.DurationVar(&o.unreadyWhenAway, "unready-when-away", o.unreadyWhenAway,
		"Fail /readyz once the API server has not answered this replica for this `duration`, so that clients are led to replicas that reach it. When "+
			"it is away for all, all are unready, and clients reach none. 0s never does.")
	fs.DurationVar(&o.consistencyCheckPeriod, "consistency-check-period", o.consistencyCheckPeriod,
		"Compare each mirrored resource with the API server's state, by key and resourceVersion, and 1/64 of its objects by their bytes, once in this "+
			"`duration`. What differs is read again. 0s never does.")
}

func (o *options) cacheFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.resources, "resources", o.resources,
		"Mirror these resources and serve them from memory: a comma-separated `list` of resource[.version][.group], as kubectl "+
			"takes them, such as pods,deployments.apps,widgets.v1.example.com. * stands for everything that can be listed and "+
			"watched, mirrored when it is first asked for; Secrets only if they are named too. All else is passed through.")
	fs.BoolVar(&o.strictResources, "strict-resources", o.strictResources,
		"Do not start while a resource that --resources names is unknown to the API server, or can never be mirrored. Otherwise the others are served, "+
			"its requests pass through, and it is mirrored once it can be; readiness does not wait for it.")
	fs.IntVar(&o.maxResources, "max-resources", o.maxResources,
		"Mirror at most this `number` of resources on demand (--resources '*'); those beyond it are passed through.")
	fs.DurationVar(&o.resourceIdleTimeout, "resource-idle-timeout", o.resourceIdleTimeout,
		"Give up a resource that is mirrored on demand when it has had no request and no watch for this `duration`. 0s keeps all.")
	fs.Var(&o.historyBytes, "history-bytes",
		"Keep this many `bytes` of past events per resource, so that clients can resume; a number, or with a unit such as 64Mi or 1Gi.")
	fs.DurationVar(&o.historyMinAge, "history-min-age", o.historyMinAge,
		"Keep events at least this long while --history-bytes allows, a `duration` such as 75s or 5m.")
	fs.IntVar(&o.backfillWatches, "backfill-watches", o.backfillWatches,
		"Let clients resume from before the past events in memory, as after a restart or from another replica: the API server is asked what "+
			"happened until then, by at most this `number` of watches at a time. 0: such clients get 410 and list anew.")
	fs.Var(&o.encodedBytes, "encoded-bytes",
		"Keep at most this many `bytes` of what was made of objects for clients that take protobuf, metadata alone or gzip, over "+
			"all resources. What is dropped is made again when it is asked for.")
	fs.Var(&o.memoryBudget, "memory-budget",
		"Stay within this many `bytes` of memory, those of the kernel for connections included. 0 is what the container has, if that is limited. The "+
			"garbage collector keeps to it (unless GOMEMLIMIT is set), other limits are lowered unless they are set, and when memory is short, what can be done "+
			"without is given up step by step: encodings, what was compressed, history beyond 75s, frames that few watches share, resources that are yet to be mirrored, answers "+
			"side by side, and in the end clients that do not take what they asked for.")
	fs.BoolVar(&o.stripManagedFields, "strip-managed-fields", o.stripManagedFields,
		"Mirror objects without metadata.managedFields, which saves memory, but is not quite what the API server would answer. What is "+
			"passed through still has them.")
}

func (o *options) plainFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.listen, "listen", o.listen,
		"Serve plain HTTP on this `address`: a loopback host:port, or unix:///path. When empty, there is no plain listener.")
	fs.StringVar(&o.listenOwner, "listen-owner", o.listenOwner,
		"Give the unix socket of --listen to this `user[:group]`, by name or number. When empty, it stays with the user that spillway runs as.")
	fs.StringVar(&o.listenMode, "listen-mode", o.listenMode,
		"The permissions of the unix socket of --listen, in `octal`: a user that may write to it may connect. It has them only once it has its "+
			"owner, and is private before.")
	fs.Var(newChoice(&o.plainIdentity, identityClient, identitySelf, identityPodToken), "plain-identity",
		"Whose rights requests on the plain listener have. client: those of the bearer token that the client sends. self: requests without "+
			"credentials act as spillway itself, with all that its kubeconfig may do. pod-token: those of the service account that spillway runs as, "+
			"to requests that bear one of its tokens; all others are refused.")
	fs.BoolVar(&o.plainSelfConnect, "plain-self-connect", o.plainSelfConnect,
		"With --plain-identity=self, also allow exec, attach, port-forward and proxy, which are refused otherwise.")
	fs.StringSliceVar(&o.acceptHosts, "accept-hosts", o.acceptHosts,
		"Accept these host names in the Host header of the plain listener, besides localhost, 127.0.0.1 and [::1]: a comma-separated "+
			"`list`. Requests with any other are refused, which keeps web pages out.")
	fs.StringSliceVar(&o.acceptOrigins, "accept-origins", o.acceptOrigins,
		"Accept requests that web pages from these origins send to the plain listener: a comma-separated `list` of scheme://host[:port].")
}

func (o *options) tlsFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.listenTLS, "listen-tls", o.listenTLS,
		"Serve HTTPS on this `address`, such as :6443. When empty, there is no TLS listener.")
	fs.StringVar(&o.tlsCertFile, "tls-cert-file", o.tlsCertFile,
		"Present the certificate chain in this PEM `file`, reloaded when it changes. When empty, a self-signed one is made in memory.")
	fs.StringVar(&o.tlsPrivateKeyFile, "tls-private-key-file", o.tlsPrivateKeyFile,
		"The private key of --tls-cert-file, a PEM `file`.")
	fs.StringSliceVar(&o.strictTransport, "strict-transport-security-directives", o.strictTransport,
		"Send these `directives` in Strict-Transport-Security, as kube-apiserver's flag of this name does: a comma-separated list, such as "+
			"max-age=31536000,includeSubDomains,preload. When empty, the header is not sent.")
	fs.BoolVar(&o.http2, "http2", o.http2,
		"Offer HTTP/2, as the API server does: all requests and watches of a client then share one connection. When off, each watch "+
			"is a connection, which costs more sockets, more CPU for events and less for large lists.")
}

func (o *options) accessFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.apiAudiences, "api-audiences", o.apiAudiences,
		"Accept tokens that are for one of these audiences: a comma-separated `list`. When empty, those for the API server itself. Tokens are "+
			"verified by the API server (TokenReview), and so is what their owners may read (SubjectAccessReview): spillway needs the "+
			"cluster role system:auth-delegator.")
	fs.DurationVar(&o.reauthSweep, "reauth-sweep", o.reauthSweep,
		"Ask again whether the users of open watches still may watch, at least once in this `duration`. A watch ends within that and 5s of the moment when "+
			"they may not any more.")
	fs.BoolVar(&o.watchRights, "watch-rights", o.watchRights,
		"Watch Roles, ClusterRoles, their bindings and ServiceAccounts, and ask at once about those that may have lost something by a change, "+
			"instead of in the next sweep. It costs five watches and a little memory, and spillway must be allowed to list and watch these; "+
			"where it is not, the sweep goes on alone.")
	fs.BoolVar(&o.localRBAC, "authorization-local-rbac", o.localRBAC,
		"Allow what Roles and their bindings allow without asking the API server, while they are proven to be not older than 10s. That is right "+
			"only where no authorizer ahead of RBAC can deny, which cannot be seen from outside: do not use it with an authorization webhook. The "+
			"API server is asked about everything else, and about one in 100 of these all the same; the first that it denies ends this until "+
			"spillway is started again. Watches what --watch-rights does.")
	fs.Var(newChoice(&o.localTokens, localTokensNone, localTokensUnbound, localTokensPods), "authentication-local-jwks",
		"Verify tokens of service accounts by the keys that the API server publishes, without a TokenReview, so that thousands of clients can "+
			"come back at once. A signature does not say that what a token is bound to still exists. That is watched, and only what is proven "+
			"to be not older than 10s counts. unbound: tokens that are bound to a service account alone. pods: those that are bound to a "+
			"pod, too, as nearly all are; every pod is watched for that. What the API server refuses for another reason is taken until one "+
			"of 100 checks finds out; then this ends. Needs --api-audiences; watches what --watch-rights does.")
	fs.StringVar(&o.clientCAFile, "client-ca-file", o.clientCAFile,
		"Accept client certificates that are signed by one of those in this PEM `file`, reloaded when it changes. Such clients get what is "+
			"answered from memory; the API server cannot be shown their certificates, so all else needs a bearer token or "+
			"--impersonate-client-certs.")
	p := &o.frontProxy
	fs.StringVar(&p.caFile, "requestheader-client-ca-file", p.caFile,
		"Believe an authenticating proxy in front of spillway, if its client certificate is signed by one of those in this PEM `file`, about "+
			"whose requests it sends.")
	fs.StringSliceVar(&p.allowedNames, "requestheader-allowed-names", p.allowedNames,
		"The common names that the certificate of that proxy may have: a comma-separated `list`. When empty, any.")
	fs.StringSliceVar(&p.nameHeaders, "requestheader-username-headers", p.nameHeaders,
		"Where that proxy names users: a comma-separated `list` of headers, of which the first that is there counts.")
	fs.StringSliceVar(&p.uidHeaders, "requestheader-uid-headers", p.uidHeaders, "Where it names their UIDs, likewise: a `list` of headers.")
	fs.StringSliceVar(&p.groupHeaders, "requestheader-group-headers", p.groupHeaders,
		"Where it names their groups: a comma-separated `list` of headers, all of which count.")
	fs.StringSliceVar(&p.extraPrefixes, "requestheader-extra-headers-prefix", p.extraPrefixes,
		"How headers begin in which it tells more of them: a comma-separated `list`.")
	fs.BoolVar(&o.impersonateClientCerts, "impersonate-client-certs", o.impersonateClientCerts,
		"Pass requests with client certificates through by impersonating the users that they prove, and likewise the users that a front proxy vouches for. Names "+
			"that an HTTP header would change are refused with 403. Needs --impersonation-kubeconfig.")
	fs.StringVar(&o.impersonationKubeconfig, "impersonation-kubeconfig", o.impersonationKubeconfig,
		"Impersonate as the current context of this `file` says. Its user should have no permission but to impersonate.")
	fs.StringSliceVar(&o.impersonateDenyGroups, "impersonate-deny-groups", o.impersonateDenyGroups,
		"Never impersonate members of these groups: a comma-separated `list`.")
	fs.BoolVar(&o.insecureAllowAll, "insecure-allow-all", o.insecureAllowAll,
		"INSECURE, for experiments on loopback: answer from memory without authentication and authorization. Every client that "+
			"reaches a listener reads every mirrored object.")
}

func (o *options) limitFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.maxConnections, "max-connections", o.maxConnections,
		"Serve at most this `number` of client connections. Another one takes the place of one that has yet to bring a request, or is between two; "+
			"where all are busy its requests are answered 429. 0: three quarters of the open files that the process may have (ulimit -n).")
	fs.IntVar(&o.maxConnectionsPerPeer, "max-connections-per-peer", o.maxConnectionsPerPeer,
		"Serve at most this `number` of them to one IP address, likewise. 0: no limit, since all pods of a node may share one.")
}

func (o *options) streamFlags(fs *pflag.FlagSet) {
	fs.Var(newChoice(&o.writers, writersAuto, writersOn, writersOff), "writers",
		"Let a few writers send all watches, which costs least. auto: where the system can, which is Linux. on: there, and do not "+
			"start elsewhere. off: a goroutine for each watch.")
	fs.DurationVar(&o.stallTimeout, "stall-timeout", o.stallTimeout,
		"End a watch whose client has not taken a byte for this `duration` while events were waiting.")
	fs.DurationVar(&o.drainPeriod, "drain-period", o.drainPeriod,
		"On the first SIGTERM or SIGINT, end watches one after another over this `duration`. A second signal stops at once.")
}

func (o *options) observabilityFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.metricsListen, "metrics-listen", o.metricsListen,
		"Serve /livez, /readyz, /metrics and the status page, /statusz, on this `address`. On anything but loopback, the last two need --metrics-tls. "+
			"When empty, none of them.")
	fs.BoolVar(&o.metricsTLS, "metrics-tls", o.metricsTLS,
		"Serve them over TLS, with the certificate of --tls-cert-file. On anything but loopback, /metrics and /statusz are then for users that the "+
			"API server allows to get that path, by bearer token or client certificate.")
	fs.BoolVar(&o.debug, "debug", o.debug,
		"Serve Go profiles under /debug/pprof on --metrics-listen, to the users of /metrics there, and let debuggers attach and core dumps "+
			"be written, which hold every credential and object in memory. Otherwise neither is possible.")
	fs.Var(newChoice(&o.logLevel, logging.Levels...), "log-level", "Log entries of this level and above.")
	fs.Var(newChoice(&o.logFormat, logging.Formats...), "log-format", "Write log lines to stderr in this format.")
}

func (o *options) configurationFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.configFile, "config", o.configFile, "Read settings from this YAML `file`; see below.")
	fs.Bool("version", false, "Print the version and exit.")
	fs.BoolP("help", "h", false, "Print this help and exit.")
}
