package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestDefaults(t *testing.T) {
	got := start(nil)
	if got.code != 0 {
		t.Fatalf("bare start: %+v", got)
	}
	o := got.options
	have := fmt.Sprint(o.Listen, o.ListenIdentity, o.ListenTLS, o.MetricsListen, o.HistoryBytes.String(), o.HistoryMinAge,
		o.StallTimeout, o.DrainPeriod)
	want := fmt.Sprint("127.0.0.1:8001", "client", "", "127.0.0.1:9464", "64Mi", 75*time.Second, 30*time.Second,
		10*time.Second)
	if have != want {
		t.Errorf("defaults are %s, want %s", have, want)
	}
}

// A setting is taken from the first place that has it: flag, environment, file, default.
func TestPrecedence(t *testing.T) {
	const file = fileStart + "stallTimeout: 3s\nhistoryBytes: 3Mi\nresources: [pods, nodes]\ndebug: true\n" +
		"metricsListen: 127.0.0.1:3\n"
	tests := []struct {
		name   string
		env    []string
		args   []string
		noFile bool

		stall     time.Duration
		bytes     string
		resources string
		debug     bool
	}{
		{name: "default", noFile: true, stall: 30 * time.Second, bytes: "64Mi"},
		{name: "file", stall: 3 * time.Second, bytes: "3Mi", resources: "pods nodes", debug: true},
		{name: "environment over file",
			env:   []string{"SPILLWAY_STALL_TIMEOUT=2s", "SPILLWAY_RESOURCES=services, secrets", "SPILLWAY_DEBUG=false"},
			stall: 2 * time.Second, bytes: "3Mi", resources: "services secrets"},
		{name: "flag over all",
			env:   []string{"SPILLWAY_STALL_TIMEOUT=2s", "SPILLWAY_HISTORY_BYTES=2Mi"},
			args:  []string{"--stall-timeout=1s", "--resources=configmaps", "--resources", "leases,configmaps", "--debug=false"},
			stall: time.Second, bytes: "2Mi", resources: "configmaps leases"},
		{name: "flag over a bad variable", noFile: true,
			env: []string{"SPILLWAY_STALL_TIMEOUT=soon"}, args: []string{"--stall-timeout=1s"},
			stall: time.Second, bytes: "64Mi"},
		{name: "an empty variable empties a list", env: []string{"SPILLWAY_RESOURCES="}, stall: 3 * time.Second, bytes: "3Mi",
			debug: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := tt.args
			if !tt.noFile {
				args = append(args, "--config", writeFile(t, "c.yaml", file))
			}
			got := start(tt.env, args...)
			if got.code != 0 {
				t.Fatalf("did not start: %s", got.stderr)
			}
			o := got.options
			if o.StallTimeout != tt.stall || o.HistoryBytes.String() != tt.bytes ||
				strings.Join(o.Resources, " ") != tt.resources || o.Debug != tt.debug {
				t.Errorf("got %v %v %q %v, want %v %v %q %v", o.StallTimeout, o.HistoryBytes.String(), o.Resources, o.Debug,
					tt.stall, tt.bytes, tt.resources, tt.debug)
			}
		})
	}
}

func TestConfigFileNamedByEnvironment(t *testing.T) {
	path := writeFile(t, "c.yaml",
		"# a comment\n"+fileStart+"listenTLS: &a 127.0.0.1:7443\ninsecureAllowAll: true\nmetricsListen: *a\n")
	got := start([]string{"SPILLWAY_CONFIG=" + path})
	if got.code != 0 || got.options.ListenTLS != "127.0.0.1:7443" || got.options.MetricsListen != "127.0.0.1:7443" {
		t.Errorf("got %+v", got)
	}
}

// An alias stands for what it names, wherever it is.
func TestAliasesInTheConfigFile(t *testing.T) {
	path := writeFile(t, "c.yaml", fileStart+"logLevel: &a debug\nacceptHosts: &l [one, *a]\n"+
		"requestHeaderAllowedNames: &k [listenOwner]\napiAudiences: *l\n")
	o := New()
	o.ConfigFile = path
	if err := o.Complete(nil); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(o.LogLevel, o.AcceptHosts, o.APIAudiences), "debug[one debug] [one debug]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	entries, err := parseConfigFile("c.yaml", []byte("a: &x one\n*x : e\n"))
	if err != nil || entries[1].key != "one" {
		t.Errorf("got %v, %v; want the key one", entries, err)
	}
}

// A Service called spillway puts these into every pod beside it.
func TestVariablesOfServicesAreIgnored(t *testing.T) {
	env := []string{
		"SPILLWAY_SERVICE_HOST=10.1.2.3", "SPILLWAY_SERVICE_PORT=6443", "SPILLWAY_SERVICE_PORT_HTTPS=6443",
		"SPILLWAY_PORT=tcp://10.1.2.3:6443",
		"SPILLWAY_PORT_6443_TCP=tcp://10.1.2.3:6443", "SPILLWAY_PORT_6443_TCP_PROTO=tcp", "SPILLWAY_PORT_6443_TCP_PORT=6443",
		"SPILLWAY_PORT_6443_TCP_ADDR=10.1.2.3", "SPILLWAY_METRICS_SERVICE_HOST=10.1.2.3",
		"SPILLWAY_METRICS_PORT=tcp://10.1.2.3:9464",
	}
	if got := start(env); got.code != 0 {
		t.Errorf("did not start: %s", got.stderr)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"accept-hosts", "history-bytes", "history-min-age", "listen", "listen-tls", "resources"}
	f := func(given, want string) {
		t.Helper()
		if got := nearest(given, names); got != want {
			t.Errorf("nearest(%q) = %q, want %q", given, got, want)
		}
	}
	f("resorces", "resources")
	f("historyBytes", "history-bytes")
	f("history_min_age", "history-min-age")
	f("lsiten", "listen")
	f("tls-listen", "listen-tls")
	f("x", "")
	f("", "")
}
