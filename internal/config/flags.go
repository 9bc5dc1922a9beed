package config

import (
	"github.com/spf13/pflag"

	"spillway/internal/logging"
)

// FlagGroup is a heading of --help and the flags under it.
type FlagGroup struct {
	Name  string
	Flags *pflag.FlagSet
}

// FlagGroups declares all flags, bound to o's fields, whose present values are the defaults.
func (o *Settings) FlagGroups() []FlagGroup {
	return []FlagGroup{
		o.group("Upstream", o.upstreamFlags),
		o.group("Cache", o.cacheFlags),
		o.group("Plain listener (HTTP, this machine only)", o.plainFlags),
		o.group("TLS listener", o.tlsFlags),
		o.group("As a sidecar", o.sidecarFlags),
		o.group("Authentication and authorization", o.accessFlags),
		o.group("Limits of clients", o.limitFlags, o.requestLimitFlags),
		o.group("Streams", o.streamFlags),
		o.group("Observability", o.observabilityFlags, o.Tracing.flags),
		o.group("Audit log", o.Audit.flags),
		o.group("Configuration", o.configurationFlags),
	}
}

// flagSet is all flags of FlagGroups.
func (o *Settings) flagSet() *pflag.FlagSet {
	flags := pflag.NewFlagSet("spillway", pflag.ContinueOnError)
	flags.Usage = func() {}
	for _, g := range o.FlagGroups() {
		flags.AddFlagSet(g.Flags)
	}
	return flags
}

// given reports that a flag was set, wherever.
func (o *Settings) given(flag string) bool { return o.flags != nil && o.flags.Changed(flag) }

func (o *Settings) group(name string, declare ...func(*pflag.FlagSet)) FlagGroup {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	for _, d := range declare {
		d(fs)
	}
	return FlagGroup{Name: name, Flags: fs}
}

func (o *Settings) upstreamFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"Reach the API server as the current context of this `file` says. When empty, use the service account of the pod "+
			"spillway runs in.")
	fs.Var(NewChoice(&o.Semantics, SemanticsNewest, SemanticsUpstream), "semantics",
		"Whose answers mirrored resources get where versions of Kubernetes differ. newest: those of the newest version "+
			"(watch-lists above all), whatever the API server's version and gates, so that a request gets the same answer "+
			"always; but nothing is compressed that the API server would send plain. upstream: those of the API server, "+
			"refusals included.")
	fs.DurationVar(&o.MaxStaleness, "max-staleness", o.MaxStaleness,
		"While the API server cannot be reached, go on answering requests that take a state of any age "+
			"(resourceVersion=0 and the like) from the last one known, for this `duration`, with its age in the header "+
			"Age. All else fails as it would at the API server. 0s answers nothing then.")
	fs.DurationVar(&o.ReadyzUpstreamTimeout, "readyz-upstream-timeout", o.ReadyzUpstreamTimeout,
		"Fail /readyz once the API server has not answered this replica for this `duration`, so that clients are led "+
			"to replicas that reach it. When it is away for all, all are unready, and clients reach none. 0s never does.")
	fs.DurationVar(&o.ConsistencyCheckPeriod, "consistency-check-period", o.ConsistencyCheckPeriod,
		"Compare each mirrored resource with the API server's state, by key and resourceVersion, and 1/64 of its "+
			"objects by their bytes, once in this `duration`. What differs is read again. 0s never does.")
}

func (o *Settings) cacheFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.Resources, "resources", o.Resources,
		"Mirror these resources and serve them from memory: a comma-separated `list` of resource[.version][.group], "+
			"as kubectl takes them, such as pods,deployments.apps,widgets.v1.example.com. * stands for everything that "+
			"can be listed and watched, mirrored when it is first asked for; Secrets only if they are named too. All else "+
			"is passed through.")
	fs.BoolVar(&o.StrictResources, "strict-resources", o.StrictResources,
		"Do not start while a resource that --resources names is unknown to the API server, or can never be mirrored. "+
			"Otherwise the others are served, its requests pass through, and it is mirrored once it can be; readiness "+
			"does not wait for it.")
	fs.IntVar(&o.MaxResources, "max-resources", o.MaxResources,
		"Mirror at most this `number` of resources on demand (--resources '*'); those beyond it are passed through.")
	fs.DurationVar(&o.ResourceIdleTimeout, "resource-idle-timeout", o.ResourceIdleTimeout,
		"Give up a resource that is mirrored on demand when it has had no request and no watch for this `duration`. 0s "+
			"keeps all.")
	fs.Var(&o.HistoryBytes, "history-bytes",
		"Keep this many `bytes` of past events per resource, so that clients can resume; a number, or with a unit such as "+
			"64Mi or 1Gi.")
	fs.DurationVar(&o.HistoryMinAge, "history-min-age", o.HistoryMinAge,
		"Keep events at least this long while --history-bytes allows, a `duration` such as 75s or 5m.")
	fs.IntVar(&o.MaxBackfillWatches, "max-backfill-watches", o.MaxBackfillWatches,
		"Let clients resume from before the past events in memory, as after a restart or from another replica: the "+
			"events until then are read from the API server, by at most this `number` of watches at a time. 0: such "+
			"clients get 410 and list anew.")
	fs.Var(&o.EncodingCacheBytes, "encoding-cache-bytes",
		"Keep at most this many `bytes` of what was made of objects for clients that take protobuf, metadata alone or "+
			"gzip, over all resources. What is dropped is made again when a client requests it.")
	fs.Var(&o.MemoryBudget, "memory-budget",
		"Stay within this many `bytes` of memory, those of the kernel for connections included. 0 is what the "+
			"container has, if that is limited. The garbage collector keeps to it (unless GOMEMLIMIT is set), other "+
			"limits are lowered unless they are set, and when memory is short, what can be done without is given up step "+
			"by step: encodings, what was compressed, history beyond 75s, frames that few watches share, resources that "+
			"are yet to be mirrored, answers side by side, and in the end clients that do not take what they asked for.")
	fs.BoolVar(&o.StripManagedFields, "strip-managed-fields", o.StripManagedFields,
		"Mirror objects without metadata.managedFields, which saves memory, but is not quite what the API server "+
			"would answer. What is passed through still has them.")
}

func (o *Settings) plainFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Listen, "listen", o.Listen,
		"Serve plain HTTP on this `address`: a loopback host:port, or unix:///path. When empty, there is no plain listener.")
	fs.StringVar(&o.ListenOwner, "listen-owner", o.ListenOwner,
		"Give the unix socket of --listen to this `user[:group]`, by name or number. When empty, it stays with the user "+
			"that spillway runs as.")
	fs.StringVar(&o.ListenMode, "listen-mode", o.ListenMode,
		"The permissions of the unix socket of --listen, in `octal`: a user that may write to it may connect. It has "+
			"them only once it has its owner, and is private before.")
	fs.Var(NewChoice(&o.ListenIdentity, IdentityClient, IdentitySelf, IdentityPodToken), "listen-identity",
		"Whose rights requests on the plain listener have. client: those of the bearer token that the client sends. "+
			"self: requests without credentials act as spillway itself, with all that its kubeconfig may do. pod-token: "+
			"those of the service account that spillway runs as, to requests that bear one of its tokens; all others are "+
			"refused.")
	fs.BoolVar(&o.ListenAllowConnect, "listen-allow-connect", o.ListenAllowConnect,
		"With --listen-identity=self, also allow exec, attach, port-forward and proxy, which are refused otherwise.")
	fs.StringSliceVar(&o.AcceptHosts, "accept-hosts", o.AcceptHosts,
		"Accept these host names in the Host header of the plain listener, besides localhost, 127.0.0.1 and [::1]: a "+
			"comma-separated `list`. Requests with any other are refused, which keeps web pages out.")
	fs.StringSliceVar(&o.AcceptOrigins, "accept-origins", o.AcceptOrigins,
		"Accept requests that web pages from these origins send to the plain listener: a comma-separated `list` of "+
			"scheme://host[:port].")
}

func (o *Settings) tlsFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ListenTLS, "listen-tls", o.ListenTLS,
		"Serve HTTPS on this `address`, such as :6443. When empty, there is no TLS listener.")
	fs.StringVar(&o.TLSCertFile, "tls-cert-file", o.TLSCertFile,
		"Present the certificate chain in this PEM `file`, reloaded when it changes. When empty, a self-signed one is made "+
			"in memory.")
	fs.StringVar(&o.TLSPrivateKeyFile, "tls-private-key-file", o.TLSPrivateKeyFile,
		"The private key of --tls-cert-file, a PEM `file`.")
	fs.StringSliceVar(&o.StrictTransport, "strict-transport-security-directives", o.StrictTransport,
		"Send these `directives` in Strict-Transport-Security, as kube-apiserver's flag of this name does: a "+
			"comma-separated list, such as max-age=31536000,includeSubDomains,preload. When empty, the header is not sent.")
	fs.BoolVar(&o.HTTP2, "http2", o.HTTP2,
		"Offer HTTP/2, as the API server does: all requests and watches of a client then share one connection. When "+
			"off, each watch is a connection, which costs more sockets, more CPU for events and less for large lists.")
}

func (o *Settings) accessFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.APIAudiences, "api-audiences", o.APIAudiences,
		"Accept tokens that are for one of these audiences: a comma-separated `list`. When empty, those for the API "+
			"server itself. Tokens are verified by the API server (TokenReview), and so is what their owners may read "+
			"(SubjectAccessReview): spillway needs the cluster role system:auth-delegator.")
	fs.DurationVar(&o.ReauthorizationInterval, "reauthorization-interval", o.ReauthorizationInterval,
		"Ask again whether the users of open watches still may watch, at least once in this `duration`. A watch ends "+
			"within that and 5s of the moment when they may not any more.")
	fs.BoolVar(&o.WatchRBAC, "watch-rbac", o.WatchRBAC,
		"Watch Roles, ClusterRoles, their bindings and ServiceAccounts, and ask at once about those that may have "+
			"lost something by a change, instead of in the next sweep. It costs five watches and a little memory, and "+
			"spillway must be allowed to list and watch these; where it is not, the sweep goes on alone.")
	fs.BoolVar(&o.LocalRBAC, "authorization-local-rbac", o.LocalRBAC,
		"Allow what Roles and their bindings allow without asking the API server, while they are proven to be not "+
			"older than 10s. That is right only where no authorizer ahead of RBAC can deny, which cannot be seen from "+
			"outside: do not use it with an authorization webhook. The API server reviews everything else, and "+
			"one in 100 of these all the same; the first that it denies ends this until spillway is started again. "+
			"Watches what --watch-rbac does.")
	fs.Var(NewChoice(&o.LocalTokens, LocalTokensNone, LocalTokensUnbound, LocalTokensPods), "authentication-local-jwks",
		"Verify tokens of service accounts by the keys that the API server publishes, without a TokenReview, so that "+
			"thousands of clients can reconnect at once. A signature does not say that what a token is bound to still "+
			"exists. That is watched, and only what is proven to be not older than 10s counts. unbound: tokens that are "+
			"bound to a service account alone. pods: those that are bound to a pod, too, as nearly all are; every pod is "+
			"watched for that. What the API server refuses for another reason is taken until one of 100 checks finds out; "+
			"then this ends. Needs --api-audiences; watches what --watch-rbac does.")
	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile,
		"Accept client certificates that are signed by one of those in this PEM `file`, reloaded when it changes. "+
			"Such clients get what is answered from memory; the API server cannot be shown their certificates, so all "+
			"else needs a bearer token or --impersonate-client-certs.")
	p := &o.FrontProxy
	fs.StringVar(&p.CAFile, "requestheader-client-ca-file", p.CAFile,
		"Believe an authenticating proxy in front of spillway, if its client certificate is signed by one of those in "+
			"this PEM `file`, about whose requests it sends.")
	fs.StringSliceVar(&p.AllowedNames, "requestheader-allowed-names", p.AllowedNames,
		"The common names that the certificate of that proxy may have: a comma-separated `list`. When empty, any.")
	fs.StringSliceVar(&p.NameHeaders, "requestheader-username-headers", p.NameHeaders,
		"Where that proxy names users: a comma-separated `list` of headers, of which the first that is there counts.")
	fs.StringSliceVar(&p.UIDHeaders, "requestheader-uid-headers", p.UIDHeaders,
		"Where it names their UIDs, likewise: a `list` of headers.")
	fs.StringSliceVar(&p.GroupHeaders, "requestheader-group-headers", p.GroupHeaders,
		"Where it names their groups: a comma-separated `list` of headers, all of which count.")
	fs.StringSliceVar(&p.ExtraPrefixes, "requestheader-extra-headers-prefix", p.ExtraPrefixes,
		"How headers begin in which it tells more of them: a comma-separated `list`.")
	fs.BoolVar(&o.ImpersonateClientCerts, "impersonate-client-certs", o.ImpersonateClientCerts,
		"Pass requests with client certificates through by impersonating the users that they prove, and likewise the "+
			"users that a front proxy vouches for. Names that an HTTP header would change are refused with 403. Needs "+
			"--impersonation-kubeconfig.")
	fs.StringVar(&o.ImpersonationKubeconfig, "impersonation-kubeconfig", o.ImpersonationKubeconfig,
		"Impersonate as the current context of this `file` says. Its user should have no permission but to impersonate.")
	fs.StringSliceVar(&o.ImpersonateDenyGroups, "impersonate-deny-groups", o.ImpersonateDenyGroups,
		"Never impersonate members of these groups: a comma-separated `list`.")
	fs.BoolVar(&o.InsecureAllowAll, "insecure-allow-all", o.InsecureAllowAll,
		"INSECURE, for experiments on loopback: answer from memory without authentication and authorization. Every "+
			"client that reaches a listener reads every mirrored object.")
}

func (o *Settings) limitFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.MaxConnections, "max-connections", o.MaxConnections,
		"Serve at most this `number` of client connections. Another one takes the place of one without a "+
			"request with good credentials so far, of one between two requests, or of one that leaves after GOAWAY. Where "+
			"there is none of these, its requests are answered 429. 0: three quarters of the open files that the process "+
			"may have (ulimit -n), and all but 128 of them where that is less.")
	fs.IntVar(&o.MaxConnectionsPerPeer, "max-connections-per-peer", o.MaxConnectionsPerPeer,
		"Serve at most this `number` of them to one IP address, likewise. 0: no limit, since all pods of a node may share "+
			"one.")
}

func (o *Settings) streamFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.StallTimeout, "stall-timeout", o.StallTimeout,
		"End a watch whose client has not taken a byte for this `duration` while events were waiting.")
	fs.DurationVar(&o.DrainPeriod, "drain-period", o.DrainPeriod,
		"On the first SIGTERM or SIGINT, end watches one after another over this `duration`. A second signal stops at once.")
}

func (o *Settings) observabilityFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.MetricsListen, "metrics-listen", o.MetricsListen,
		"Serve /livez, /readyz, /metrics and the status page, /statusz, on this `address`. On anything but loopback, "+
			"the last two need --metrics-tls. When empty, none of them.")
	fs.BoolVar(&o.MetricsTLS, "metrics-tls", o.MetricsTLS,
		"Serve them over TLS, with the certificate of --tls-cert-file. On anything but loopback, /metrics and "+
			"/statusz are then for users that the API server allows to get that path, by bearer token or client "+
			"certificate.")
	fs.BoolVar(&o.Debug, "debug", o.Debug,
		"Serve Go profiles under /debug/pprof on --metrics-listen, to the users of /metrics there, and let debuggers "+
			"attach and core dumps be written, which hold every credential and object in memory. Otherwise neither is "+
			"possible.")
	fs.Var(NewChoice(&o.LogLevel, logging.Levels...), "log-level", "Log entries of this level and above.")
	fs.Var(NewChoice(&o.LogFormat, logging.Formats...), "log-format", "Write log lines to stderr in this format.")
}

func (o *Settings) configurationFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ConfigFile, "config", o.ConfigFile, "Read settings from this YAML `file`; see below.")
	fs.Bool("version", false, "Print the version and exit.")
	fs.BoolP("help", "h", false, "Print this help and exit.")
}
