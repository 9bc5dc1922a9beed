package config

import "spillway/internal/listen"

// group is a heading of --help and the rows under it.
type group struct {
	name string
	rows []*setting
}

// table is all settings. Flags, variables, keys of the configuration file, validation, help,
// docs/flags.md and the schema of the chart's values are made from it.
func (o *Settings) table() []group {
	l := &o.Limits
	return []group{
		{"Upstream", []*setting{
			{name: "kubeconfig", value: &o.Kubeconfig, check: isReadable,
				text: "Reach the API server as the current context of this `file` says. When empty, use the service account of " +
					"spillway's pod."},
			{name: "semantics", value: &o.Semantics, words: []string{SemanticsNewest, SemanticsUpstream}, preset: "newest",
				text: "Whose answers mirrored resources get where versions of Kubernetes differ. newest: those of the newest " +
					"version (watch-lists above all), whatever the API server's version and gates; but nothing is compressed " +
					"that the API server would send plain. upstream: those of the API server, refusals included."},
			{name: "max-staleness", value: &o.MaxStaleness, preset: "1h",
				zero: "answers nothing while the API server is unreachable",
				text: "While the API server is unreachable, go on answering requests that take a state of any age " +
					"(resourceVersion=0 and the like) from the last one known, for this `duration`. The header Age says how old " +
					"it is. All other requests fail as they would at the API server."},
			{name: "readyz-upstream-timeout", value: &o.ReadyzUpstreamTimeout, least: "30s", zero: "never fails readiness",
				remedy: "an API server takes that long to restart",
				text: "Fail /readyz once the API server has not answered this replica for this `duration`, so that clients are " +
					"led to replicas that reach it. If no replica reaches it, all are unready, and clients reach none."},
			{name: "consistency-check-period", value: &o.ConsistencyCheckPeriod, preset: "10m", least: "10s",
				zero: "compares nothing",
				text: "Compare each mirrored resource with the API server's state once in this `duration`: all keys and " +
					"resourceVersions, and the bytes of one object in 64. What differs is read again."},
		}},
		{"Cache", []*setting{
			{name: "resources", value: &o.Resources, check: CheckResource,
				text: "Mirror these resources and serve them from memory: a comma-separated `list` of " +
					"resource[.version][.group], as kubectl takes them, such as pods,deployments.apps,widgets.v1.example.com. " +
					"* stands for everything that can be listed and watched, mirrored at its first request; Secrets only if " +
					"they are named too. Everything else passes through."},
			{name: "strict-resources", value: &o.StrictResources,
				text: "Do not start while a resource that --resources names is unknown to the API server, or can never be " +
					"mirrored. Otherwise the others are served, its requests pass through, and it is mirrored once it can be; " +
					"readiness does not wait for it."},
			{name: "max-resources", value: &o.MaxResources, preset: "256", least: "1",
				remedy: "to mirror nothing on demand, leave * out of --resources",
				text:   "Mirror at most this `number` of resources on demand (--resources '*'). Others pass through."},
			{name: "resource-idle-timeout", value: &o.ResourceIdleTimeout, preset: "1h", zero: "keeps every resource",
				text: "Give up a resource that is mirrored on demand when it has had no request and no watch for this " +
					"`duration`."},
			{name: "history-bytes", value: &o.HistoryBytes, preset: "64Mi", least: "4Ki", part: 8,
				text: "Keep this many `bytes` of past events per resource, so that clients can resume; a number, or with a " +
					"unit such as 64Mi or 1Gi."},
			{name: "history-min-age", value: &o.HistoryMinAge, preset: "75s", zero: "keeps what fits into --history-bytes",
				text: "Keep events at least this long while --history-bytes allows, a `duration` such as 75s or 5m."},
			{name: "max-backfill-watches", value: &o.MaxBackfillWatches, preset: "64",
				zero: "answers resumes from older versions with 410",
				text: "Let clients resume from a resourceVersion older than the events in memory, as after a restart or at " +
					"another replica. The missing events are read from the API server, by at most this `number` of watches at " +
					"a time."},
			{name: "encoding-cache-bytes", value: &o.EncodingCacheBytes, preset: "256Mi", least: "4Ki", zero: "keeps none",
				part: 8,
				text: "Keep at most this many `bytes` of encodings of objects, over all resources: protobuf, metadata alone " +
					"and gzip. One that was dropped is made again when a client requests it."},
			{name: "memory-budget", value: &o.MemoryBudget, least: "64Mi", zero: "is the limit of the container",
				text: "Stay within this many `bytes` of memory, those of the kernel for connections included. The garbage " +
					"collector keeps to it (unless GOMEMLIMIT is set), and limits that are not set are lowered. When memory is " +
					"short, spillway takes three steps: it drops bytes that can be made again; it shortens history to 75s; it " +
					"makes large answers one by one, mirrors nothing more on demand, and evicts the most expensive clients."},
			{name: "strip-managed-fields", value: &o.StripManagedFields,
				text: "Mirror objects without metadata.managedFields. This saves memory, but is not quite what the API server " +
					"would answer. Answers that pass through still have them."},
		}},
		{"Plain listener (HTTP, this machine only)", []*setting{
			{name: "listen", value: &o.Listen, preset: "127.0.0.1:8001", check: listen.CheckPlainAddress,
				text: "Serve plain HTTP on this `address`: a loopback host:port, or unix:///path. When empty, there is no " +
					"plain listener."},
			{name: "listen-owner", value: &o.ListenOwner,
				text: "Give the unix socket of --listen to this `user[:group]`, by name or number. When empty, it stays with " +
					"spillway's own user."},
			{name: "listen-mode", value: &o.ListenMode, preset: "0600",
				text: "The permissions of the unix socket of --listen, in `octal`: a user that may write to it may connect. It " +
					"is private until it has its owner."},
			{name: "listen-identity", value: &o.ListenIdentity, preset: IdentityClient,
				words: []string{IdentityClient, IdentitySelf, IdentityPodToken},
				text: "Whose rights requests on the plain listener have. client: those of the bearer token that the client " +
					"sends. self: requests without credentials act as spillway itself, with all rights of its kubeconfig. " +
					"pod-token: those of spillway's service account, for requests with one of its tokens; others are refused."},
			{name: "listen-allow-connect", value: &o.ListenAllowConnect, needs: []string{"--listen-identity=self"},
				text: "Also allow exec, attach, port-forward and proxy on the plain listener, which are refused otherwise."},
			{name: "accept-hosts", value: &o.AcceptHosts, check: checkHost,
				text: "Accept these host names in the Host header of the plain listener, besides localhost, 127.0.0.1 and " +
					"[::1]: a comma-separated `list`. Requests with any other are refused, which keeps web pages out."},
			{name: "accept-origins", value: &o.AcceptOrigins, check: checkOrigin,
				text: "Accept requests that web pages from these origins send to the plain listener: a comma-separated `list` " +
					"of scheme://host[:port]."},
		}},
		{"TLS listener", []*setting{
			{name: "listen-tls", value: &o.ListenTLS, check: checkAddress,
				text: "Serve HTTPS on this `address`, such as :6443. When empty, there is no TLS listener."},
			{name: "tls-cert-file", value: &o.TLSCertFile, check: isReadable,
				needs: []string{"--tls-private-key-file", "--listen-tls or --metrics-tls"},
				text: "Present the certificate chain in this PEM `file`, reloaded when it changes. When empty, a self-signed " +
					"one is made in memory."},
			{name: "tls-private-key-file", value: &o.TLSPrivateKeyFile, check: isReadable, needs: []string{"--tls-cert-file"},
				text: "The private key of --tls-cert-file, a PEM `file`."},
			{name: "strict-transport-security-directives", value: &o.StrictTransport, check: checkDirective,
				needs: []string{"--listen-tls"},
				text: "Send these `directives` in Strict-Transport-Security, as kube-apiserver's flag of this name does: a " +
					"comma-separated list, such as max-age=31536000,includeSubDomains,preload. When empty, the header is not " +
					"sent."},
			{name: "http2", value: &o.HTTP2, preset: "true",
				text: "Offer HTTP/2, as the API server does: all requests and watches of a client then share one connection. " +
					"When off, each watch is a connection: it costs more sockets and more CPU for events, and less for large " +
					"lists."},
		}},
		{"As a sidecar", []*setting{
			{name: "sidecar-dir", value: &o.SidecarDir,
				excludes: []string{"kubeconfig", "tls-cert-file", "client-ca-file", "requestheader-client-ca-file",
					"api-audiences", "watch-rbac", "authorization-local-rbac", "authentication-local-jwks", "insecure-allow-all"},
				because: "a sidecar uses the service account of its pod, and serves that account alone",
				text: "Be the API server of the other containers of this pod. Write to this `folder` what they read in " +
					"/var/run/secrets/kubernetes.io/serviceaccount: the pod's token, again whenever it is rotated, its namespace, " +
					"and the certificate to trust on --listen-tls, which must be on loopback. spillway inject sets this."},
			{name: "sidecar-key-dir", value: &o.SidecarKeyDir, needs: []string{"--sidecar-dir"},
				text: "Keep the key for that certificate in this `folder`, so that clients still trust it after a restart. Use a " +
					"memory-backed volume that no other container mounts. When empty, the key is lost with the process."},
		}},
		{"Authentication and authorization", []*setting{
			{name: "api-audiences", value: &o.APIAudiences, check: isNotEmpty,
				text: "Accept tokens that are for one of these audiences: a comma-separated `list`. When empty, those for the " +
					"API server itself. The API server verifies tokens (TokenReview) and what their users may read " +
					"(SubjectAccessReview): spillway needs the cluster role system:auth-delegator."},
			{name: "reauthorization-interval", value: &o.ReauthorizationInterval, preset: "25s", least: "15s",
				text: "Review at least once in this `duration` whether the users of open watches still may watch. A watch ends " +
					"within that and 5s of the moment when its user no longer may."},
			{name: "watch-rbac", value: &o.WatchRBAC,
				text: "Watch Roles, ClusterRoles, their bindings and ServiceAccounts, and review at once the watches that may " +
					"have lost something by a change, instead of in the next sweep. It costs five watches and a little memory. " +
					"Spillway must be allowed to list and watch these; where it is not, the sweep goes on alone."},
			{name: "authorization-local-rbac", value: &o.LocalRBAC,
				text: "Allow what Roles and their bindings allow without a review by the API server, while they are proven to " +
					"be not older than 10s. That is right only where no authorizer ahead of RBAC can deny, which cannot be seen " +
					"from outside: do not use it with an authorization webhook. The API server reviews everything else, and one " +
					"in 100 of these; the first that it denies ends this until spillway is started again. Implies --watch-rbac."},
			{name: "authentication-local-jwks", value: &o.LocalTokens, preset: LocalTokensNone,
				words: []string{LocalTokensNone, LocalTokensUnbound, LocalTokensPods},
				needs: []string{"--api-audiences, because the API server's own audiences cannot be seen from outside"},
				text: "Verify tokens of service accounts by the keys that the API server publishes, without a TokenReview, so " +
					"that thousands of clients can reconnect at once. A signature does not say that what a token is bound to " +
					"still exists. That is watched, and only what is proven to be not older than 10s counts. unbound: tokens " +
					"that are bound to a service account alone. pods: those that are bound to a pod, too, as nearly all are; " +
					"every pod is watched for that. What the API server refuses for another reason is accepted until one of 100 " +
					"checks shows it; then this ends. Implies --watch-rbac."},
			{name: "client-ca-file", value: &o.ClientCAFile, check: isReadable,
				needs: []string{"--listen-tls or --metrics-tls"},
				text: "Accept client certificates that are signed by one of those in this PEM `file`, reloaded when it " +
					"changes. Such clients are answered from memory. Spillway cannot forward their certificates to the API " +
					"server, so all else needs a bearer token or --impersonate-client-certs."},
			{name: "requestheader-client-ca-file", value: &o.FrontProxyCAFile, check: isReadable,
				needs: []string{"--listen-tls or --metrics-tls"},
				text: "Verify client certificates by this PEM `file` of root certificates before trusting the user names in " +
					"headers specified by --requestheader-username-headers."},
			{name: "requestheader-allowed-names", value: &o.FrontProxyNames, needs: []string{"--requestheader-client-ca-file"},
				text: "Trust these headers from certificates with one of these common names: a comma-separated `list`. When " +
					"empty, from any that --requestheader-client-ca-file verifies."},
			{name: "requestheader-username-headers", value: &o.FrontProxyNameHeaders, preset: "X-Remote-User",
				check: checkHeader,
				text:  "Inspect these headers for user names: a comma-separated `list`, of which the first that is there counts."},
			{name: "requestheader-uid-headers", value: &o.FrontProxyUIDHeaders, preset: "X-Remote-Uid", check: checkHeader,
				text: "Inspect these headers for UIDs, likewise: a `list`."},
			{name: "requestheader-group-headers", value: &o.FrontProxyGroupHeaders, preset: "X-Remote-Group",
				check: checkHeader,
				text:  "Inspect these headers for groups: a comma-separated `list`, all of which count."},
			{name: "requestheader-extra-headers-prefix", value: &o.FrontProxyExtraPrefixes, preset: "X-Remote-Extra-",
				check: checkHeader,
				text:  "Inspect headers with these prefixes for extra information about users: a comma-separated `list`."},
			{name: "impersonate-client-certs", value: &o.ImpersonateClientCerts,
				needs: []string{"--impersonation-kubeconfig, whose user may impersonate and nothing else",
					"--client-ca-file or --requestheader-client-ca-file"},
				text: "Pass requests with client certificates through by impersonating the users that they prove, and likewise " +
					"the users that a front proxy vouches for. Names that an HTTP header would change are refused with 403."},
			{name: "impersonation-kubeconfig", value: &o.ImpersonationKubeconfig, check: isReadable,
				needs: []string{"--impersonate-client-certs"},
				text: "Impersonate as the current context of this `file` says. Its user should have no permission but to " +
					"impersonate."},
			{name: "impersonate-deny-groups", value: &o.ImpersonateDenyGroups, preset: "system:masters",
				text: "Never impersonate members of these groups: a comma-separated `list`."},
			{name: "insecure-allow-all", value: &o.InsecureAllowAll,
				excludes: []string{"client-ca-file", "requestheader-client-ca-file", "watch-rbac", "authorization-local-rbac",
					"authentication-local-jwks"},
				because: "it authenticates no client",
				text: "INSECURE, for experiments on loopback: answer from memory without authentication and authorization. " +
					"Every client that reaches a listener reads every mirrored object."},
		}},
		{"Limits of clients", []*setting{
			{name: "max-connections", value: &o.MaxConnections, zero: "is as many as open files allow", part: 64 << 10,
				text: "Serve at most this `number` of client connections. Another one takes the place of one without a request " +
					"with good credentials so far, of one between two requests, or of one that leaves after GOAWAY. Where " +
					"there is none of these, its requests are answered 429. Three quarters of the open files (ulimit -n) may " +
					"be connections; at least 128 are kept for other uses."},
			{name: "max-connections-per-peer", value: &o.MaxConnectionsPerPeer, zero: "is no limit",
				text: "Serve at most this `number` of them to one IP address, likewise. All pods of a node may share one."},
			// Some 700 MB while they are idle. Each is reckoned at 16 KiB, the kernel's part included.
			{name: "max-watches", value: &l.Watches, preset: "100000", zero: "is no limit", part: 16 << 10,
				text: "Serve at most this `number` of watches at a time. Logs, exec, attach, port-forward and proxied requests " +
					"that pass through count, too. Beyond this limit and those below, requests are answered 429 with " +
					"Retry-After, as the API server does."},
			{name: "max-watches-per-user", value: &l.WatchesPerUser, preset: "50000", zero: "is no limit", part: 32 << 10,
				text: "Serve at most this `number` of them to one user; to one address, where the user is not known. Unless it " +
					"is set, a user may have more while an eighth of --max-watches remains free for others."},
			{name: "max-list-bytes-in-flight", value: &l.ListBytes, preset: "1Gi", least: "1Mi", zero: "is no limit",
				part: 2, // of which a list under way takes little itself; see flowcontrol.Limits.ListBytes
				text: "Send at most this many `bytes` of large lists and of initial states of watches at the same time, and " +
					"half of that to one user. Others wait for their turn, up to 5s; the user with the least goes first. What " +
					"is compressed counts an eighth."},
			// Two selectors of 60,000 terms each, 512 of 256, or any number of few: some 5 MB.
			{name: "max-selector-terms-per-user", value: &l.SelectorTermsPerUser, preset: "131072", zero: "is no limit",
				part: 2 * selectorTermBytes,
				text: "Let the selectors of one user's watches that are answered from memory have at most this `number` of " +
					"terms in all, which are names and the values of sets. All users together have eight times as many, but " +
					"at most one for each KiB of --memory-budget. 32 bytes of a selector are a term at least. Equal selectors " +
					"of a user count once, and those of up to 16 terms not at all."},
			{name: "max-large-header-bytes", value: &l.HeaderBytes, preset: "64Mi", least: "1Mi", zero: "is no limit",
				part: 16,
				text: "Hold at most this many `bytes` for large heads of requests at a time, of all connections together: " +
					"those above 16 KiB over HTTP/1.1, which count six times, and those above 32 KiB, decoded, over HTTP/2. " +
					"Others are answered 431. A head may have 1 MiB, as at the API server."},
			// As a kube-apiserver takes by its own defaults: 400 that read and 200 that write.
			{name: "max-passthrough-requests", value: &l.PassThrough, preset: "600", zero: "is no limit",
				text: "Pass at most this `number` of requests through at a time, besides those that last. Others wait for " +
					"their turn, up to 15s; the user with the fewest requests under way goes first. Senders that the API " +
					"server has not accepted lately have an eighth of it together."},
			{name: "max-passthrough-requests-per-user", value: &l.PassThroughPerUser, preset: "300", zero: "is no limit",
				text: "Pass at most this `number` of them through for one user."},
			{name: "max-passthrough-qps-per-user", value: &l.QPSPerUser, most: "1000000", zero: "is no limit",
				text: "Pass at most this `number` of requests per second through for one user."},
			{name: "max-passthrough-burst-per-user", value: &l.BurstPerUser, zero: "is as many as in two seconds",
				needs: []string{"--max-passthrough-qps-per-user"},
				text:  "Pass this `number` of requests through at once before --max-passthrough-qps-per-user counts."},
		}},
		{"Streams", []*setting{
			{name: "stall-timeout", value: &o.StallTimeout, preset: "30s", least: "1ms",
				text: "End a watch whose client has not taken a byte for this `duration` while events were waiting."},
			{name: "drain-period", value: &o.DrainPeriod, preset: "10s", zero: "ends all watches at once",
				text: "On the first SIGTERM or SIGINT, end watches one after another over this `duration`. A second signal " +
					"stops at once."},
		}},
		{"Observability", []*setting{
			{name: "metrics-listen", value: &o.MetricsListen, preset: "127.0.0.1:9464", check: checkAddress,
				text: "Serve /livez, /readyz, /metrics and the status page, /statusz, on this `address`. On anything but " +
					"loopback, the last two need --metrics-tls. When empty, none of them is served."},
			{name: "metrics-tls", value: &o.MetricsTLS, needs: []string{"--metrics-listen"},
				text: "Serve them over TLS, with the certificate of --tls-cert-file. On anything but loopback, /metrics and " +
					"/statusz are then for users that the API server allows to get that path, by bearer token or client " +
					"certificate."},
			{name: "debug", value: &o.Debug, needs: []string{"--metrics-listen, where profiles are served"},
				text: "Serve Go profiles under /debug/pprof on --metrics-listen, to the users of /metrics there. Let debuggers " +
					"attach and core dumps be written, which hold every credential and object in memory. Otherwise neither is " +
					"possible."},
			{name: "log-level", value: &o.LogLevel, words: []string{"debug", "info", "warn", "error"}, preset: "info",
				text: "Log entries of this level and above."},
			{name: "log-format", value: &o.LogFormat, words: []string{"json", "console"}, preset: "json",
				text: "Write log lines to stderr in this format."},
			{name: "tracing-config-file", value: &o.TracingConfigFile, check: isReadable,
				text: "Trace requests as this `file` says (apiserver.config.k8s.io/v1 TracingConfiguration), which may be that " +
					"of the API server: a span for each that is sampled, sent to an OpenTelemetry collector over OTLP/gRPC. " +
					"/metrics then has exemplars, in OpenMetrics. When empty, nothing is traced."},
		}},
		{"Audit log", []*setting{ // with the names and defaults of kube-apiserver
			{name: "audit-policy-file", value: &o.AuditPolicyFile, check: isReadable,
				needs: []string{"--audit-log-path, which may be - for standard output"},
				text: "Record requests that are answered from memory as the policy in this `file` says (audit.k8s.io/v1 " +
					"Policy), which may be that of the API server. The API server itself records what passes through. When " +
					"empty, there is no audit log."},
			{name: "audit-log-path", value: &o.AuditLogPath,
				needs: []string{"--audit-policy-file, which says what is recorded"},
				text: "Write audit events to this `file`, one JSON document a line, as the API server does. - is standard " +
					"output."},
			{name: "audit-log-maxsize", value: &o.AuditLogMaxSize, preset: "100", zero: "is no limit",
				text: "Rotate the audit log when it has this `number` of megabytes."},
			{name: "audit-log-maxage", value: &o.AuditLogMaxAge, preset: "366", zero: "is no limit",
				text: "Keep rotated audit logs for this `number` of days."},
			{name: "audit-log-maxbackup", value: &o.AuditLogMaxBackups, preset: "100", zero: "is no limit",
				text: "Keep at most this `number` of rotated audit logs."},
			{name: "audit-log-compress", value: &o.AuditLogCompress, text: "Compress rotated audit logs with gzip."},
			{name: "audit-fail-closed", value: &o.AuditFailClosed, needs: []string{"--audit-policy-file"},
				text: "Answer nothing from memory whose audit events could not be written within a second: it passes through, " +
					"so that the API server records it. Otherwise it is answered all the same. What blocks is then given its " +
					"events later, at most 16 MiB and, of watches that have ended, 64 MiB; more is lost and counted."},
		}},
		{"Configuration", []*setting{
			{name: "config", value: &o.ConfigFile, text: "Read settings from this YAML `file`; see below."},
		}},
	}
}
