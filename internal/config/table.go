package config

import (
	"cmp"
	"strings"

	"spillway/internal/listen"
)

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
			{name: "kubeconfig", common: true, value: &o.Kubeconfig, check: isReadable,
				text: "Reach the API server by this kubeconfig `file`, and by default as the service account of the pod, " +
					"or outside pods by the files that kubectl reads. These are the files of the variable KUBECONFIG, or " +
					"else ~/.kube/config."},
			{name: "context", common: true, value: &o.Context,
				text: "Use the context of this `name` in the kubeconfig. When empty, use the context that is current at the " +
					"start."},
			{name: "emulated-version", value: &o.EmulatedVersion, words: []string{EmulateNewest, EmulateUpstream},
				preset: EmulateNewest,
				text: "The version of Kubernetes whose answers clients get for mirrored resources. newest: the newest " +
					"version, whatever version and feature gates the API server has. Watch-lists then always work, and " +
					"answers are compressed only if the API server compresses answers. upstream: the API server's version, " +
					"with its refusals."},
			{name: "max-staleness", common: true, value: &o.MaxStaleness, preset: "1h",
				zero: "answers nothing while the API server is unreachable",
				text: "While the API server is unreachable, answer requests for a state of any age from the last known " +
					"state for this `duration`. resourceVersion=0 requests such a state. The header Age says how old the " +
					"state is. Other requests fail, as they would at the API server."},
			{name: "readyz-upstream-timeout", value: &o.ReadyzUpstreamTimeout, least: "30s", zero: "never fails readiness",
				remedy: "an API server takes that long to restart",
				text: "Fail /readyz if the API server has not answered this replica for this `duration`, so that clients " +
					"use other replicas. If no replica reaches the API server, all replicas are unready, and clients reach " +
					"none of them."},
			{name: "consistency-check-period", value: &o.ConsistencyCheckPeriod, preset: "10m", least: "10s",
				zero: "compares nothing",
				text: "Compare each mirrored resource with the API server's state once in this `duration`: all keys and " +
					"resourceVersions, and the bytes of one object in 64. Objects that differ are read again."},
		}},
		{"Cache", []*setting{
			{name: "resources", common: true, value: &o.Resources, check: CheckResource,
				text: "Mirror these resources and serve them from memory: a comma-separated `list` of " +
					"resource[.version][.group]. Names are as for kubectl, such as " +
					"pods,deployments.apps,widgets.v1.example.com. * stands for everything that can be listed and watched, " +
					"except secrets, which must be named. Such a resource is mirrored at its first request. Requests for " +
					"other resources pass through."},
			{name: "strict-resources", value: &o.StrictResources,
				text: "Do not start if --resources names a resource that the API server does not have, or that can never " +
					"be mirrored. Without this flag, spillway starts, and requests for the resource pass through until it " +
					"can be mirrored. Names without a group must always exist, because these resources come with the API " +
					"server."},
			{name: "max-resources", value: &o.MaxResources, preset: "256", least: "1",
				remedy: "to mirror nothing on demand, leave * out of --resources",
				text: "Mirror at most this `number` of resources on demand (--resources '*'). Requests for further " +
					"resources pass through."},
			{name: "resource-idle-timeout", value: &o.ResourceIdleTimeout, preset: "1h", zero: "keeps every resource",
				text: "Stop mirroring a resource on demand after this `duration` without a request or a watch."},
			{name: "history-bytes", common: true, value: &o.HistoryBytes, preset: "64Mi", least: "4Ki", budgetShare: 8,
				text: "Keep this many `bytes` of past events for each resource, so that clients can resume. The number " +
					"may have a unit, such as 64Mi or 1Gi."},
			{name: "history-min-age", value: &o.HistoryMinAge, preset: "75s", zero: "keeps what fits into --history-bytes",
				text: "Keep events for at least this `duration`, such as 75s or 5m, as far as --history-bytes allows."},
			{name: "max-backfill-watches", value: &o.MaxBackfillWatches, preset: "64",
				zero: "answers resumes from older versions with 410",
				text: "Let clients resume from a resourceVersion older than the events in memory, as after a restart or " +
					"at another replica. At most this `number` of watches at a time read the missing events from the API " +
					"server."},
			{name: "encoding-cache-bytes", value: &o.EncodingCacheBytes, preset: "256Mi", least: "4Ki", zero: "keeps none",
				budgetShare: 8,
				text: "Keep at most this many `bytes` of encoded objects of all resources: in protobuf, as metadata, and " +
					"compressed by gzip. An encoding that was dropped is made again when a client requests it."},
			{name: "memory-budget", common: true, value: &o.MemoryBudget, least: "64Mi", zero: "is the limit of the container",
				text: "Stay within this many `bytes` of memory, by default the limit of the container. This includes the " +
					"kernel's memory for connections. The " +
					"garbage collector observes the budget, unless GOMEMLIMIT is set. Limits that are not set are lowered " +
					"to fit. If memory is short, spillway takes three steps. First it drops bytes that can be made again. " +
					"Then it shortens history to 75s. Then it makes large answers one by one, mirrors no further resource " +
					"on demand, and evicts the most expensive clients."},
			{name: "strip-managed-fields", value: &o.StripManagedFields,
				text: "Mirror objects without metadata.managedFields. Mirrors then take less memory, but answers from " +
					"memory differ from the API server's. Answers that pass through still have the field."},
		}},
		{"Plain listener (HTTP, this machine only)", []*setting{
			{name: "listen", common: true, value: &o.Listen, preset: "127.0.0.1:8001", check: listen.CheckPlainAddress,
				text: "Serve plain HTTP on this `address`: a loopback host:port, or unix:///path. When empty, there is no " +
					"plain listener."},
			{name: "listen-owner", value: &o.ListenOwner,
				text: "Give the unix socket of --listen to this `user[:group]`, by name or number. When empty, the socket " +
					"belongs to spillway's own user."},
			{name: "listen-mode", value: &o.ListenMode, preset: "0600",
				text: "The permissions of the unix socket of --listen, in `octal`. Users that may write to the socket may " +
					"connect."},
			{name: "listen-identity", common: true, value: &o.ListenIdentity, preset: IdentityClient,
				words: []string{IdentityClient, IdentitySelf, IdentityPodToken},
				text: "Give requests on the plain listener the rights of the token that they bring (client), of " +
					"spillway itself without a token (self), or of its service account for a token of that account " +
					"(pod-token). With self, all programs on the machine have all permissions of spillway's kubeconfig. " +
					"kubectl sends no token over plain HTTP. With pod-token, other requests are refused."},
			{name: "listen-allow-connect", common: true, value: &o.ListenAllowConnect, needs: []string{"--listen-identity=self"},
				text: "Also allow exec, attach, port-forward and proxy on the plain listener. Without this flag, they are " +
					"refused."},
			{name: "accept-hosts", value: &o.AcceptHosts, check: checkHost,
				text: "Accept these host names in the Host header of the plain listener, besides localhost, 127.0.0.1 and " +
					"[::1]: a comma-separated `list`. Requests with other names are refused, which keeps web pages out."},
			{name: "accept-origins", value: &o.AcceptOrigins, check: checkOrigin,
				text: "Accept requests that web pages from these origins send to the plain listener: a comma-separated `list` " +
					"of scheme://host[:port]."},
		}},
		{"TLS listener", []*setting{
			{name: "listen-tls", common: true, value: &o.ListenTLS, check: checkAddress,
				text: "Serve HTTPS on this `address`, such as :6443. When empty, there is no TLS listener."},
			{name: "tls-cert-file", common: true, value: &o.TLSCertFile, check: isReadable,
				needs: []string{"--tls-private-key-file"}, forTLS: true,
				text: "Present the certificate chain in this PEM `file`, which is the same in all replicas. spillway " +
					"reloads the file when it changes. When empty, each process makes a self-signed certificate of its own " +
					"in memory."},
			{name: "tls-private-key-file", common: true, value: &o.TLSPrivateKeyFile, check: isReadable,
				needs: []string{"--tls-cert-file"},
				text:  "The private key of --tls-cert-file, a PEM `file`."},
			{name: "strict-transport-security-directives", value: &o.StrictTransport, check: checkDirective,
				needs: []string{"--listen-tls"},
				text: "Send these `directives` in the header Strict-Transport-Security, as kube-apiserver's flag of this " +
					"name does. They are a comma-separated list, such as max-age=31536000,includeSubDomains,preload. When " +
					"empty, the header is not sent."},
			{name: "disable-http2-serving", value: &o.DisableHTTP2,
				text: "Offer only HTTP/1.1. With HTTP/2, all requests and watches of a client share one connection. Without " +
					"it, each watch needs a connection. That costs more sockets and more CPU for events, and less CPU for " +
					"large lists."},
		}},
		{"As a sidecar", []*setting{
			{name: "sidecar-dir", value: &o.SidecarDir,
				excludes: []string{"kubeconfig", "context", "tls-cert-file", "client-ca-file", "requestheader-client-ca-file",
					"api-audiences", "watch-rbac", "authorization-local-rbac", "authentication-local-jwks", "insecure-allow-all"},
				because: "a sidecar uses the service account of its pod, and serves that account alone",
				text: "Act as the API server for the other containers of this pod. Write to this `folder` the files that " +
					"they read in /var/run/secrets/kubernetes.io/serviceaccount: the namespace, the pod's token whenever it " +
					"is rotated, and the certificate authority of --listen-tls. The address of --listen-tls must be on " +
					"loopback. spillway inject sets this flag."},
			{name: "sidecar-key-dir", value: &o.SidecarKeyDir, needs: []string{"--sidecar-dir"},
				text: "Keep the key of the sidecar's certificate authority in this `folder`, so that clients trust the " +
					"sidecar after a restart. Use a memory-backed volume that no other container mounts. When empty, " +
					"spillway makes a new key at each start."},
		}},
		{"Authentication and authorization", []*setting{
			{name: "api-audiences", value: &o.APIAudiences, check: isNotEmpty,
				text: "Accept tokens for one of these audiences: a comma-separated `list`. When empty, the API server's " +
					"audiences are accepted. The API server reviews tokens (TokenReview) and permissions " +
					"(SubjectAccessReview). So spillway needs the cluster role system:auth-delegator."},
			{name: "reauthorization-interval", value: &o.ReauthorizationInterval, preset: "25s", least: "15s",
				text: "Review at least once in this `duration` whether the users of open watches may still watch. A watch ends " +
					"at most this duration and 5s after its user has lost the permission."},
			{name: "watch-rbac", value: &o.WatchRBAC,
				text: "Watch Roles, ClusterRoles, their bindings and ServiceAccounts. When one of these changes, spillway " +
					"reviews the watches that may have lost a permission. It does so at once, and not only after " +
					"--reauthorization-interval. The flag costs five watches and a little memory. If spillway may not list " +
					"and watch these resources, only the interval applies."},
			{name: "authorization-local-rbac", common: true, value: &o.LocalRBAC,
				text: "Allow what Roles and their bindings allow, without a review by the API server. Their state must " +
					"be proven to be at most 10s old. Use this flag only if no authorizer ahead of RBAC can deny, such as an " +
					"authorization webhook. Spillway cannot see such an authorizer from outside. The API server reviews " +
					"everything else, and one in 100 of these decisions. If the API server denies what was " +
					"allowed locally, local decisions end until spillway is restarted. Implies --watch-rbac."},
			{name: "authentication-local-jwks", value: &o.LocalTokens, preset: LocalTokensNone,
				words: []string{LocalTokensNone, LocalTokensUnbound, LocalTokensPods},
				needs: []string{"--api-audiences, because the API server's own audiences cannot be seen from outside"},
				text: "Verify tokens of service accounts by the keys that the API server publishes, without a " +
					"TokenReview. Then thousands of clients can reconnect at once. A signature does not prove that the " +
					"objects to which a token is bound still exist. So spillway watches these objects, and accepts a token " +
					"only if their state is proven to be at most 10s old. unbound: verify tokens that are bound to a " +
					"service account alone. pods: also verify tokens that are bound to a pod, as nearly all are. Spillway " +
					"then watches every pod. The API server still reviews one in 100 tokens. If it refuses a token that " +
					"spillway accepts, local verification ends. Until then, such tokens are accepted. Implies --watch-rbac."},
			{name: "client-ca-file", common: true, value: &o.ClientCAFile, check: isReadable,
				forTLS: true,
				text: "Accept client certificates that an authority in this PEM `file` has signed. The file is read again " +
					"when it changes. Clients with such a certificate are answered from memory. Spillway cannot forward the " +
					"certificate to the API server. So their other requests need a bearer token or " +
					"--impersonate-client-certs."},
			{name: "requestheader-client-ca-file", value: &o.FrontProxyCAFile, check: isReadable,
				forTLS: true,
				text: "Verify client certificates by this PEM `file` of root certificates before trusting the user names in " +
					"headers specified by --requestheader-username-headers."},
			{name: "requestheader-allowed-names", value: &o.FrontProxyNames, needs: []string{"--requestheader-client-ca-file"},
				text: "Trust user names in headers only from certificates with one of these common names: a comma-separated " +
					"`list`. When empty, trust any certificate that --requestheader-client-ca-file verifies."},
			{name: "requestheader-username-headers", value: &o.FrontProxyNameHeaders, preset: "X-Remote-User",
				check: checkHeader,
				text:  "Inspect these headers for user names: a comma-separated `list`. The first one that is present is used."},
			{name: "requestheader-uid-headers", value: &o.FrontProxyUIDHeaders, preset: "X-Remote-Uid", check: checkHeader,
				text: "Inspect these headers for UIDs: a comma-separated `list`. The first one that is present is used."},
			{name: "requestheader-group-headers", value: &o.FrontProxyGroupHeaders, preset: "X-Remote-Group",
				check: checkHeader,
				text:  "Inspect these headers for groups: a comma-separated `list`. All of them are used."},
			{name: "requestheader-extra-headers-prefix", value: &o.FrontProxyExtraPrefixes, preset: "X-Remote-Extra-",
				check: checkHeader,
				text:  "Inspect headers with these prefixes for extra information about users: a comma-separated `list`."},
			{name: "impersonate-client-certs", value: &o.ImpersonateClientCerts,
				needs: []string{"--impersonation-kubeconfig, whose user may impersonate and nothing else",
					"--client-ca-file or --requestheader-client-ca-file"},
				text: "Pass requests with client certificates through by impersonating their users. Pass requests of a " +
					"front proxy through by impersonating the users that it names. Names that an HTTP header would change " +
					"are refused with 403."},
			{name: "impersonation-kubeconfig", value: &o.ImpersonationKubeconfig, check: isReadable,
				needs: []string{"--impersonate-client-certs"},
				text: "Impersonate with the current context of this kubeconfig `file`. The user of that context should " +
					"have no permission except to impersonate."},
			{name: "impersonate-deny-groups", value: &o.ImpersonateDenyGroups, preset: "system:masters",
				text: "Never impersonate members of these groups: a comma-separated `list`."},
			{name: "insecure-allow-all", common: true, value: &o.InsecureAllowAll,
				excludes: []string{"client-ca-file", "requestheader-client-ca-file", "watch-rbac", "authorization-local-rbac",
					"authentication-local-jwks"},
				because: "it authenticates no client",
				text: "INSECURE, for experiments on loopback: answer from memory without authentication and authorization. " +
					"Every client that reaches a listener reads every mirrored object."},
		}},
		{"Limits of clients", []*setting{
			{name: "max-connections", value: &o.MaxConnections, zero: "is as many as open files allow", budgetBytes: 64 << 10,
				text: "Serve at most this `number` of client connections. A further connection replaces one that has " +
					"shown no valid credentials yet, is between two requests, or leaves after GOAWAY. If there is no such " +
					"connection, requests on the further one are answered 429. Three quarters of the open files (ulimit -n) " +
					"may be connections. At least 128 files are kept for other uses."},
			{name: "max-connections-per-peer", value: &o.MaxConnectionsPerPeer, zero: "is no limit",
				text: "Serve at most this `number` of connections from one IP address. All pods of a node may share an " +
					"address."},
			// Some 700 MB while they are idle. Each is reckoned at 16 KiB, the kernel's part included.
			{name: "max-watches", common: true, value: &l.Watches, preset: "100000", zero: "is no limit", budgetBytes: 16 << 10,
				text: "Serve at most this `number` of watches at a time. Logs, exec, attach, port-forward and proxied requests " +
					"that pass through count as well. Beyond this limit and the other limits of clients, requests are " +
					"answered 429 with Retry-After, as at the API server."},
			{name: "max-watches-per-user", value: &l.WatchesPerUser, preset: "50000", zero: "is no limit", budgetBytes: 32 << 10,
				text: "Serve at most this `number` of watches to one user, or to one address if the user is unknown. " +
					"Unless this flag is set, a user may have more while an eighth of --max-watches is free for others."},
			{name: "max-list-bytes-in-flight", value: &l.ListBytes, preset: "1Gi", least: "1Mi", zero: "is no limit",
				budgetShare: 2, // a list in progress takes little of that itself; see flowcontrol.Limits.ListBytes
				text: "Send at most this many `bytes` of large lists and of initial states of watches at the same time. " +
					"At most half of them are for one user. Further requests wait for their turn, up to 5s. The user with " +
					"the fewest bytes is first. Compressed answers count an eighth."},
			// Two selectors of 60,000 terms each, 512 of 256, or any number of few: some 5 MB.
			{name: "max-selector-terms-per-user", value: &l.SelectorTermsPerUser, preset: "131072", zero: "is no limit",
				budgetBytes: 2 * selectorTermBytes,
				text: "Allow at most this `number` of terms in all selectors of one user's watches that are answered from " +
					"memory. Names and the values of sets are terms. All users together have eight times as many, but at " +
					"most one for each KiB of --memory-budget. A selector counts at least one term for each 32 bytes. Equal " +
					"selectors of a user count once. Selectors of up to 16 terms do not count."},
			{name: "max-large-header-bytes", value: &l.HeaderBytes, preset: "64Mi", least: "1Mi", zero: "is no limit",
				budgetShare: 16,
				text: "Hold at most this many `bytes` of large request heads at a time, for all connections together. A " +
					"head over HTTP/1.1 is large above 16 KiB, and counts six times. A head over HTTP/2 is large above 32 " +
					"KiB, decoded. Further large heads are answered 431. A head may have 1 MiB, as at the API server."},
			// As a kube-apiserver takes by its own defaults: 400 that read and 200 that write.
			{name: "max-passthrough-requests", value: &l.PassThrough, preset: "600", zero: "is no limit",
				text: "Pass at most this `number` of requests through at a time, not counting watches and other " +
					"long-running requests. Further requests wait for their turn, up to 15s. The user with the fewest " +
					"requests in progress is first. Clients that the API server has not accepted lately share an eighth of " +
					"this limit."},
			{name: "max-passthrough-requests-per-user", value: &l.PassThroughPerUser, preset: "300", zero: "is no limit",
				text: "Pass at most this `number` of requests through at a time for one user."},
			{name: "max-passthrough-qps-per-user", value: &l.QPSPerUser, most: "1000000", zero: "is no limit",
				text: "Pass at most this `number` of requests per second through for one user."},
			{name: "max-passthrough-burst-per-user", value: &l.BurstPerUser, zero: "is as many as in two seconds",
				needs: []string{"--max-passthrough-qps-per-user"},
				text:  "Pass this `number` of requests through at once before --max-passthrough-qps-per-user applies."},
		}},
		{"Streams", []*setting{
			{name: "stall-timeout", common: true, value: &o.StallTimeout, preset: "30s", least: "1ms",
				text: "End a watch whose client has not taken a byte for this `duration` while events were waiting."},
			{name: "drain-period", common: true, value: &o.DrainPeriod, preset: "10s", zero: "ends all watches at once",
				text: "On the first SIGTERM or SIGINT, end watches one after another over this `duration`. A second signal " +
					"stops at once. The chart sets 30s."},
		}},
		{"Observability", []*setting{
			{name: "metrics-listen", common: true, value: &o.MetricsListen, preset: "127.0.0.1:9464", check: checkAddress,
				text: "Serve /livez, /readyz, /metrics and the status page (/statusz) on this `address`. If the address " +
					"is not loopback, the listener has TLS, with the certificate of --tls-cert-file. /metrics and /statusz " +
					"are then only for users that the API server allows to access these paths. Such a user sends a bearer " +
					"token or presents a client certificate. When empty, none of these paths is served."},
			{name: "profiling", value: &o.Profiling, needs: []string{"--metrics-listen, where profiles are served"},
				text: "Serve Go profiles under /debug/pprof on --metrics-listen, to the users that may read /metrics."},
			{name: "allow-core-dumps", value: &o.AllowCoreDumps,
				text: "Allow debuggers and core dumps, which contain every credential and object in memory."},
			{name: "log-level", common: true, value: &o.LogLevel, words: []string{"debug", "info", "warn", "error"},
				preset: "info",
				text:   "Log entries of this level and above."},
			{name: "log-format", common: true, value: &o.LogFormat, words: []string{"json", "console"}, preset: "json",
				text: "Write log lines to stderr in this format."},
			{name: "tracing-config-file", value: &o.TracingConfigFile, check: isReadable,
				text: "Trace requests as this `file` says (apiserver.config.k8s.io/v1 TracingConfiguration). The API " +
					"server's own file will do. Spillway sends a span for each sampled request to an OpenTelemetry " +
					"collector over OTLP/gRPC. /metrics then has exemplars, in OpenMetrics. When empty, nothing is traced."},
		}},
		{"Audit log", []*setting{ // with the names and defaults of kube-apiserver
			{name: "audit-policy-file", common: true, value: &o.AuditPolicyFile, check: isReadable,
				needs: []string{"--audit-log-path, which may be - for standard output"},
				text: "Record requests that are answered from memory as the policy in this `file` says (audit.k8s.io/v1 " +
					"Policy). The API server's own file will do. The API server itself records requests that pass through. " +
					"When empty, there is no audit log."},
			{name: "audit-log-path", common: true, value: &o.AuditLogPath,
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
				text: "Answer a request from memory only if its audit event could be written within a second. Otherwise " +
					"the request passes through, and the API server records it. Without this flag, the request is answered " +
					"all the same. An audit log that blocks receives the events later: at most 16 MiB, and 64 MiB of " +
					"watches that have ended. Further events are lost and counted."},
		}},
		{"Configuration", []*setting{
			{name: "config", common: true, value: &o.ConfigFile,
				text: "Read settings from this YAML `file`, as described below."},
		}},
	}
}

// keyWords are the words of flags that a key of the configuration file does not write as camelCase
// does: acronyms, and words that a flag runs together. The rule of keys is the method key.
var keyWords = map[string]string{
	"ca": "CA", "http2": "HTTP2", "jwks": "JWKS", "qps": "QPS", "rbac": "RBAC", "tls": "TLS", "uid": "UID",
	"maxage": "MaxAge", "maxbackup": "MaxBackup", "maxsize": "MaxSize", "requestheader": "RequestHeader",
}

// fileless is the setting that has no key, because a configuration file cannot name another.
const fileless = "config"

// key is the name of the setting in the configuration file: the words of the flag in camelCase, as
// historyBytes for history-bytes. Acronyms are in capitals, but not as the first word: tlsCertFile
// and clientCAFile. Empty: the file cannot have the setting.
func (s *setting) key() string {
	if s.name == fileless {
		return ""
	}
	words := strings.Split(s.name, "-")
	for i, word := range words {
		words[i] = cmp.Or(keyWords[word], strings.ToUpper(word[:1])+word[1:])
	}
	if first := words[0]; first == strings.ToUpper(first) {
		words[0] = strings.ToLower(first)
	} else {
		words[0] = strings.ToLower(first[:1]) + first[1:]
	}
	return strings.Join(words, "")
}

// variable is the environment variable of the setting: SPILLWAY_HISTORY_BYTES for history-bytes.
func (s *setting) variable() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}
