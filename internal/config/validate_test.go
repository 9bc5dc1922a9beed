package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each bad setting stops the start with exactly this line. DIR stands for a directory of the test's
// own.
func TestBadSettings(t *testing.T) {
	tests := []struct {
		name string
		env  []string
		args string // separated by spaces
		want string
	}{
		// the command line itself
		{"unknown flag", nil, "--resorces=pods", "--resorces: no such flag; did you mean --resources?"},
		{"unknown flag, nothing near", nil, "--frobnicate", "--frobnicate: no such flag; spillway --help=all lists them"},
		{"unknown shorthand", nil, "-v",
			"-v: no such flag; spillway version prints the version, and --log-level=debug logs more"},
		{"another unknown shorthand", nil, "-x", "-x: no such flag; spillway --help=all lists them"},
		{"bad syntax", nil, "--=x", "bad flag syntax: --=x; spillway --help=all lists the flags"},
		{"no value", nil, "--listen", "--listen: needs a value"},
		{"not a duration", nil, "--stall-timeout=30", "--stall-timeout=30: must be a number with a unit, such as 30s or 2m"},
		{"not a number", nil, "--max-resources=many", "--max-resources=many: must be a whole number"},
		{"not a bool", nil, "--profiling=maybe", "--profiling=maybe: must be true or false"},
		{"not bytes", nil, "--history-bytes=64MB",
			"--history-bytes=64MB: must be a number of bytes, such as 64Mi or 67108864"},
		{"parts of a byte", nil, "--history-bytes=100m",
			"--history-bytes=100m: must be a number of bytes, such as 64Mi or 67108864"},
		{"not a choice", nil, "--listen-identity=root", "--listen-identity=root: must be client, self or pod-token"},
		{"not a level", nil, "--log-level=trace", "--log-level=trace: must be debug, info, warn or error"},
		{"not a format", nil, "--log-format=xml", "--log-format=xml: must be json or console"},
		// the environment
		{"unknown variable", []string{"SPILLWAY_LISTN=x"}, "",
			"SPILLWAY_LISTN: no such setting; did you mean SPILLWAY_LISTEN?"},
		{"unknown variable, nothing near", []string{"SPILLWAY_FOO=x"}, "",
			"SPILLWAY_FOO: no such setting; unset it; spillway --help=all lists all names"},
		{"variable of what is not a setting", []string{"SPILLWAY_VERSION=1"}, "",
			"SPILLWAY_VERSION: no such setting; unset it; spillway --help=all lists all names"},
		{"bad value in a variable", []string{"SPILLWAY_DRAIN_PERIOD=x"}, "",
			"SPILLWAY_DRAIN_PERIOD=x: must be a number with a unit, such as 30s or 2m"},
		{"refused value in a variable", []string{"SPILLWAY_LISTEN=:8001"}, "",
			"SPILLWAY_LISTEN=:8001: plain HTTP is served on loopback only: " +
				"use 127.0.0.1, [::1], localhost or unix:///path here, and --listen-tls for other machines"},
		// upstream and cache
		{"no kubeconfig", nil, "--kubeconfig=DIR/none", "--kubeconfig=DIR/none: cannot be read: no such file or directory"},
		{"kubeconfig is a directory", nil, "--kubeconfig=DIR", "--kubeconfig=DIR: cannot be read: is a directory"},
		{"uppercase resource", nil, "--resources=pods,Nodes",
			"--resources=Nodes: must be in lower case, as in the NAME and APIVERSION columns of kubectl api-resources"},
		{"resources that are not named", nil, "--config=DIR/empty.yaml",
			"--resources is not set: name the resources to serve from memory, such as " +
				"--resources=pods,services, or set --resources='' to pass everything through"},
		{"a context in a pod", nil, "--context=dev",
			"--context=dev: requires --kubeconfig in a pod, whose service account has no contexts"},
		{"no resource", nil, "--resources=pods,,nodes",
			"--resources=pods,,nodes: must be * or resource[.version][.group], such as pods, deployments.apps or " +
				"widgets.v1.example.com"},
		{"a budget without its unit", nil, "--memory-budget=512",
			"--memory-budget=512: must be at least 64Mi, or 0, which is the limit of the container; is the unit missing, as " +
				"in 512Mi?"},
		{"no on-demand resources", nil, "--max-resources=0",
			"--max-resources=0: must be at least 1; to mirror nothing on demand, leave * out of --resources"},
		{"negative idle timeout", nil, "--resource-idle-timeout=-1h",
			"--resource-idle-timeout=-1h0m0s: must not be negative; 0s keeps every resource"},
		{"unit forgotten", nil, "--history-bytes=64",
			"--history-bytes=64: must be at least 4Ki; is the unit missing, as in 512Mi?"},
		{"heads without a unit", nil, "--max-large-header-bytes=64",
			"--max-large-header-bytes=64: must be at least 1Mi, or 0, which is no limit; is the unit missing, as in 512Mi?"},
		{"negative bytes", nil, "--history-bytes=-64Mi",
			"--history-bytes=-64Mi: must be at least 4Ki; is the unit missing, as in 512Mi?"},
		{"unit forgotten", nil, "--encoding-cache-bytes=64",
			"--encoding-cache-bytes=64: must be at least 4Ki, or 0, which keeps none; is the unit missing, as in 512Mi?"},
		{"negative bytes", nil, "--encoding-cache-bytes=-64Mi",
			"--encoding-cache-bytes=-64Mi: must be at least 4Ki, or 0, which keeps none; is the unit missing, as in 512Mi?"},
		{"negative staleness", nil, "--max-staleness=-1s",
			"--max-staleness=-1s: must not be negative; 0s answers nothing while the API server is unreachable"},
		{"unready at once", nil, "--readyz-upstream-timeout=5s",
			"--readyz-upstream-timeout=5s: must be at least 30s, or 0s, which never fails readiness; " +
				"an API server takes that long to restart"},
		{"negative patience", nil, "--readyz-upstream-timeout=-1m",
			"--readyz-upstream-timeout=-1m0s: must be at least 30s, or 0s, which never fails readiness; " +
				"an API server takes that long to restart"},
		{"checks all the time", nil, "--consistency-check-period=1s",
			"--consistency-check-period=1s: must be at least 10s, or 0s, which compares nothing"},
		{"negative backfill", nil, "--max-backfill-watches=-1",
			"--max-backfill-watches=-1: must not be negative; 0 answers resumes from older versions with 410"},
		{"negative age", nil, "--history-min-age=-1s",
			"--history-min-age=-1s: must not be negative; 0s keeps what fits into --history-bytes"},
		{"directives without TLS", nil, "--strict-transport-security-directives=max-age=1,preload",
			"--strict-transport-security-directives=max-age=1,preload: requires --listen-tls"},
		{"a directive that is none", nil, "--listen-tls=:6443 --strict-transport-security-directives=max-age=1,never",
			"--strict-transport-security-directives=never: must be max-age=<seconds>, includeSubDomains or preload (RFC 6797, " +
				"section 6.1)"},
		{"an age that is none", nil, "--listen-tls=:6443 --strict-transport-security-directives=max-age=1y",
			"--strict-transport-security-directives=max-age=1y: must be max-age=<seconds>, includeSubDomains or preload (RFC " +
				"6797, section 6.1)"},
		{"a log without a policy", nil, "--audit-log-path=-",
			"--audit-log-path=-: requires --audit-policy-file, which says what is recorded"},
		{"a policy without a log", nil, "--audit-policy-file=DIR/none",
			"--audit-policy-file=DIR/none: requires --audit-log-path, which may be - for standard output"},
		{"no such policy", nil, "--audit-log-path=- --audit-policy-file=DIR/none",
			"--audit-policy-file=DIR/none: cannot be read: no such file or directory"},
		{"required of nothing", nil, "--audit-fail-closed",
			"--audit-fail-closed=true: requires --audit-policy-file"},
		{"a negative age of logs", nil, "--audit-log-maxage=-1",
			"--audit-log-maxage=-1: must not be negative; 0 is no limit"},
		{"negative connections", nil, "--max-connections=-1",
			"--max-connections=-1: must not be negative; 0 is as many as open files allow"},
		{"negative connections of a peer", nil, "--max-connections-per-peer=-1",
			"--max-connections-per-peer=-1: must not be negative; 0 is no limit"},
		{"no stall timeout", nil, "--stall-timeout=0s", "--stall-timeout=0s: must be at least 1ms"},
		{"negative drain period", nil, "--drain-period=-1s",
			"--drain-period=-1s: must not be negative; 0s ends all watches at once"},
		// limits
		{"negative watches", nil, "--max-watches=-1", "--max-watches=-1: must not be negative; 0 is no limit"},
		{"negative share", nil, "--max-passthrough-requests-per-user=-1",
			"--max-passthrough-requests-per-user=-1: must not be negative; 0 is no limit"},
		{"unit forgotten", nil, "--max-list-bytes-in-flight=512",
			"--max-list-bytes-in-flight=512: must be at least 1Mi, or 0, which is no limit; is the unit missing, as in 512Mi?"},
		{"negative bytes", nil, "--max-list-bytes-in-flight=-1Gi",
			"--max-list-bytes-in-flight=-1Gi: must be at least 1Mi, or 0, which is no limit; is the unit missing, as in 512Mi?"},
		{"not a rate", nil, "--max-passthrough-qps-per-user=many", "--max-passthrough-qps-per-user=many: must be a number"},
		{"no number", nil, "--max-passthrough-qps-per-user=NaN",
			"--max-passthrough-qps-per-user=NaN: must be from 0 to 1000000; 0 is no limit"},
		{"infinite", nil, "--max-passthrough-qps-per-user=Inf",
			"--max-passthrough-qps-per-user=+Inf: must be from 0 to 1000000; 0 is no limit"},
		{"negative rate", nil, "--max-passthrough-qps-per-user=-0.5",
			"--max-passthrough-qps-per-user=-0.5: must be from 0 to 1000000; 0 is no limit"},
		{"burst without rate", nil, "--max-passthrough-burst-per-user=10",
			"--max-passthrough-burst-per-user=10: requires --max-passthrough-qps-per-user"},
		// listeners
		{"open plain listener", nil, "--listen=0.0.0.0:8001",
			"--listen=0.0.0.0:8001: plain HTTP is served on loopback only: " +
				"use 127.0.0.1, [::1], localhost or unix:///path here, and --listen-tls for other machines"},
		{"no port", nil, "--listen=localhost", "--listen=localhost: must be host:port, such as 127.0.0.1:8001 or :6443"},
		{"bad port", nil, "--listen=localhost:http", "--listen=localhost:http: the port must be a number from 0 to 65535"},
		{"port too high", nil, "--listen=localhost:65536",
			"--listen=localhost:65536: the port must be a number from 0 to 65535"},
		{"relative socket", nil, "--listen=unix://spillway.sock",
			"--listen=unix://spillway.sock: must be unix:// and an absolute path, such as unix:///run/spillway.sock"},
		{"an owner of no socket", nil, "--listen-owner=root",
			"--listen-owner=root: requires a unix socket, as in --listen=unix:///run/spillway.sock"},
		{"a mode of no socket", nil, "--listen-mode=0660",
			"--listen-mode=0660: requires a unix socket, as in --listen=unix:///run/spillway.sock"},
		{"an owner that is none", nil, "--listen=unix:///run/s --listen-owner=nobody-at-all",
			`--listen-owner=nobody-at-all: there is no user "nobody-at-all" on this machine; name one, or its number`},
		{"a group that is none", nil, "--listen=unix:///run/s --listen-owner=:nobodies",
			`--listen-owner=:nobodies: there is no group "nobodies" on this machine; name one, or its number`},
		{"half an owner", nil, "--listen=unix:///run/s --listen-owner=root:",
			"--listen-owner=root:: must be user, user:group or :group, such as root:docker or 1000:1000"},
		{"a mode in letters", nil, "--listen=unix:///run/s --listen-mode=rw",
			"--listen-mode=rw: must be permissions in octal that let the owner read and write, such as 0600 or 0660"},
		{"a mode that is not octal", nil, "--listen=unix:///run/s --listen-mode=0680",
			"--listen-mode=0680: must be permissions in octal that let the owner read and write, such as 0600 or 0660"},
		{"a mode that keeps us out", nil, "--listen=unix:///run/s --listen-mode=0060",
			"--listen-mode=0060: must be permissions in octal that let the owner read and write, such as 0600 or 0660"},
		{"a mode with more than permissions", nil, "--listen=unix:///run/s --listen-mode=4600",
			"--listen-mode=4600: must be permissions in octal that let the owner read and write, such as 0600 or 0660"},
		{"no listener", nil, "--listen=",
			"no listener: --listen and --listen-tls are both empty; set one, such as --listen=127.0.0.1:8001"},
		{"connect without self", nil, "--listen-allow-connect",
			"--listen-allow-connect=true: requires --listen-identity=self"},
		{"host with port", nil, "--accept-hosts=dev.local:8001",
			"--accept-hosts=dev.local:8001: must be a host name or IP address, without scheme, port or wildcard"},
		{"any host", nil, "--accept-hosts=*",
			"--accept-hosts=*: must be a host name or IP address, without scheme, port or wildcard"},
		{"origin with path", nil, "--accept-origins=https://a.example/x",
			"--accept-origins=https://a.example/x: must be scheme://host or scheme://host:port, " +
				"as a browser sends it in Origin"},
		{"any origin", nil, "--accept-origins=*",
			"--accept-origins=*: must be scheme://host or scheme://host:port, as a browser sends it in Origin"},
		{"TLS open to all", nil, "--listen-tls=:6443 --insecure-allow-all",
			"--insecure-allow-all=true: cannot be used with --listen-tls=:6443, which other machines reach: " +
				"use a loopback address, such as 127.0.0.1:6443"},
		{"TLS without port", nil, "--listen-tls=example.com",
			"--listen-tls=example.com: must be host:port, such as 127.0.0.1:8001 or :6443"},
		{"certificate without key", nil, "--tls-cert-file=DIR/a",
			"--tls-cert-file=DIR/a: requires --tls-private-key-file"},
		{"key without certificate", nil, "--tls-private-key-file=DIR/a",
			"--tls-private-key-file=DIR/a: requires --tls-cert-file"},
		{"certificate without TLS", nil, "--tls-cert-file=a --tls-private-key-file=b",
			"--tls-cert-file=a: requires --listen-tls, or --metrics-listen on an address that is not loopback"},
		{"no certificate file", nil, "--listen-tls=:0 --tls-cert-file=DIR/a --tls-private-key-file=DIR/b",
			"--tls-cert-file=DIR/a: cannot be read: no such file or directory"},
		{"no key file", nil, "--listen-tls=:0 --tls-cert-file=DIR/bad.yaml --tls-private-key-file=DIR/b",
			"--tls-private-key-file=DIR/b: cannot be read: no such file or directory"},
		{"no header of user names", nil,
			"--listen-tls=:0 --requestheader-client-ca-file=DIR/bad.yaml --requestheader-username-headers=",
			"--requestheader-username-headers=: must name a header, such as X-Remote-User"},
		{"a header that is none", nil, "--requestheader-group-headers=X-Remote-Group,X:Y",
			"--requestheader-group-headers=X:Y: must be the name of a header, such as X-Remote-User"},
		// access
		{"impatient", nil, "--reauthorization-interval=10s", "--reauthorization-interval=10s: must be at least 15s"},
		{"no audience", nil, "--api-audiences=a,,b", "--api-audiences=a,,b: must not contain an empty item"},
		{"no audience alone", nil, `--api-audiences=""`, "--api-audiences=: must not contain an empty item"},
		{"certificates without TLS", nil, "--client-ca-file=DIR/bad.yaml",
			"--client-ca-file=DIR/bad.yaml: requires --listen-tls, or --metrics-listen on an address that is not loopback"},
		{"tokens for any audience", nil, "--authentication-local-jwks=pods",
			"--authentication-local-jwks=pods: requires --api-audiences, " +
				"because the API server's own audiences cannot be seen from outside"},
		{"unknown tokens", nil, "--authentication-local-jwks=all",
			"--authentication-local-jwks=all: must be none, unbound or pods"},
		{"rights that are not checked", nil, "--authorization-local-rbac --insecure-allow-all",
			"--insecure-allow-all=true: cannot be used with --authorization-local-rbac, because it authenticates no client"},
		{"certificates that are not checked", nil,
			"--listen-tls=127.0.0.1:0 --insecure-allow-all --client-ca-file=DIR/bad.yaml",
			"--insecure-allow-all=true: cannot be used with --client-ca-file, because it authenticates no client"},
		{"no file of a front proxy", nil, "--listen-tls=:0 --requestheader-client-ca-file=DIR/none",
			"--requestheader-client-ca-file=DIR/none: cannot be read: no such file or directory"},
		{"front proxy without authorities", nil, "--requestheader-allowed-names=front",
			"--requestheader-allowed-names=front: requires --requestheader-client-ca-file"},
		{"impersonation without a kubeconfig", nil, "--impersonate-client-certs",
			"--impersonate-client-certs=true: requires --impersonation-kubeconfig, " +
				"whose user may impersonate and nothing else"},
		{"impersonation without clients", nil, "--impersonate-client-certs --impersonation-kubeconfig=DIR/bad.yaml",
			"--impersonate-client-certs=true: requires --client-ca-file or --requestheader-client-ca-file"},
		{"no impersonation", nil, "--impersonation-kubeconfig=DIR/bad.yaml",
			"--impersonation-kubeconfig=DIR/bad.yaml: requires --impersonate-client-certs"},
		{"metrics without port", nil, "--metrics-listen=localhost",
			"--metrics-listen=localhost: must be host:port, such as 127.0.0.1:8001 or :6443"},
		{"profiles nowhere", nil, "--profiling --metrics-listen=",
			"--profiling=true: requires --metrics-listen, where profiles are served"},
		{"profiles for all", nil, "--profiling --metrics-listen=:9464 --listen-tls=127.0.0.1:0 --insecure-allow-all",
			"--profiling=true: requires --metrics-listen on loopback, or an authentication of its users, because profiles " +
				"show secrets; --metrics-listen is :9464"},
		{"a port alone", nil, "--listen-tls=6443", "--listen-tls=6443: must be host:port; did you mean :6443?"},
		{"a port alone of the plain listener", nil, "--listen=8001",
			"--listen=8001: must be host:port; did you mean 127.0.0.1:8001?"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Dir(writeFile(t, "bad.yaml", "listen: ["))
			if err := os.WriteFile(filepath.Join(dir, "empty.yaml"), []byte(fileStart), 0o600); err != nil {
				t.Fatal(err)
			}
			begin := start
			if strings.Contains(tt.args, "empty.yaml") {
				begin = startBare
			}
			got := begin(tt.env, strings.Fields(strings.ReplaceAll(tt.args, "DIR", dir))...)
			expectLine(t, got, strings.ReplaceAll(tt.want, "DIR", dir))
		})
	}
}

func TestGoodSettings(t *testing.T) {
	f := func(args ...string) {
		t.Helper()
		if got := start(nil, args...); got.code != 0 || got.options == nil {
			t.Errorf("%q: %s", args, got.stderr)
		}
	}
	f("--listen=[::1]:0")
	f("--listen=localhost:8001", "--accept-hosts=dev.local,10.0.0.7,::1",
		"--accept-origins=http://localhost:3000,https://a.example")
	f("--listen=unix:///run/spillway.sock", "--metrics-listen=")
	f("--listen=", "--listen-tls=:6443", "--metrics-listen=:9464")
	f("--listen-tls=localhost:6443", "--insecure-allow-all")
	f("--profiling", "--metrics-listen=:9464")
	f("--listen=unix:///run/spillway.sock", "--listen-mode=0660", "--listen-owner=root:1000")
	f("--watch-rbac", "--reauthorization-interval=10m", "--authorization-local-rbac", "--authentication-local-jwks=pods",
		"--api-audiences=https://kubernetes.default.svc")
	f("--listen-identity=self", "--listen-allow-connect", "--resources=*,secrets")
	f("--listen-tls=:6443", "--strict-transport-security-directives=max-age=31536000,includeSubDomains,preload")
	f("--max-connections=100", "--max-connections-per-peer=10")
	f("--drain-period=0s", "--history-min-age=0s", "--history-bytes=1.5Gi", "--encoding-cache-bytes=0",
		"--max-staleness=0s",
		"--consistency-check-period=0s", "--max-backfill-watches=0")
}

// What is dangerous or surely not meant is said loudly, and does not stop the start.
func TestWarnings(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		got := start(nil, args...)
		if got.code != 0 {
			t.Fatalf("%q: %s", args, got.stderr)
		}
		warnings := strings.Join(got.options.Warnings(), " ")
		if (warnings != "") != (want != "") || !strings.Contains(warnings, want) {
			t.Errorf("%q: warnings %q; want one with %q", args, warnings, want)
		}
	}
	f("", "--resources=pods", "--listen-identity=self")
	f("INSECURE: --insecure-allow-all", "--resources=pods", "--insecure-allow-all")
	f("nothing is mirrored", "--resources=")
	f("", "--resources=pods")
	f("--reauthorization-interval is above 25s", "--resources=pods", "--reauthorization-interval=5m")
	f("every user of this machine", "--resources=pods", "--listen-identity=self", "--listen=unix:///run/s",
		"--listen-mode=0666")
	f("--authorization-local-rbac allows what RBAC allows", "--resources=pods", "--authorization-local-rbac")
	f("every scrape of /metrics and every request for /statusz is refused", "--resources=pods", "--insecure-allow-all",
		"--metrics-listen=:9464")
	f("self-signed certificate", "--resources=pods", "--metrics-listen=:9464")
	f("", "--resources=pods", "--metrics-listen=127.0.0.1:9465")
	f("self-signed certificate", "--resources=pods", "--listen-tls=127.0.0.1:6443")
	// which shows its pod what to trust
	f("", "--resources=pods", "--listen=", "--listen-tls=127.0.0.1:6443", "--sidecar-dir=/a",
		"--metrics-listen=:9464")
	f("--history-min-age is below 75s", "--resources=pods", "--listen-identity=self", "--history-min-age=10s")
}

func TestCheckResource(t *testing.T) {
	f := func(arg string, good bool) {
		t.Helper()
		if err := CheckResource(arg); (err == nil) != good {
			t.Errorf("checkResource(%q) = %v, want good: %v", arg, err, good)
		}
	}
	f("*", true)
	f("pods", true)
	f("pods.v1.", true)
	f("deployments.apps", true)
	f("deployments.v1.apps", true)
	f("widgets.v1.example.com", true)
	f("leases.coordination.k8s.io", true)
	f("network-attachments.k8s.cni.cncf.io", true)
	f("", false)
	f("pods.", false)
	f("pods..", false)
	f(".apps", false)
	f("pods.v1", true)
	f("widgets.v1beta2", true)
	f("pods/log", false)
	f("Pods", false)
	f("po ds", false)
	f("pods.*", false)
	f("pods.v1_.", false)
	f("-x", false)
}
