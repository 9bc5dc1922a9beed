package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// Each bad configuration file stops the start with exactly this line; FILE stands for its path.
func TestBadConfigFiles(t *testing.T) {
	const (
		wanted  = "config.spillway.example.com/v1alpha1"
		noStart = "is missing; begin the file with `apiVersion: " + wanted + "`"
		lines   = "write lines of the form `key: value`, as spillway config print does"
		aText   = "the items of a list must be texts"
	)
	kind := func(kind string) string { return "apiVersion: " + wanted + "\n" + kind }
	version := func(version string) string { return "apiVersion: " + version + "\nkind: SpillwayConfiguration\n" }
	for _, tt := range []struct{ name, text, want string }{
		// the header
		{"an empty file", "", "FILE:1: apiVersion: " + noStart},
		{"a comment alone", "# nothing\n", "FILE:1: apiVersion: " + noStart},
		{"a document without content", "---\n", "FILE:1: apiVersion: " + noStart},
		{"no apiVersion", "kind: SpillwayConfiguration\nprofiling: true\n", "FILE:1: apiVersion: " + noStart},
		{"names of flags alone", "history-bytes: 8Mi\n", "FILE:1: apiVersion: " + noStart},
		{"no kind", kind("profiling: true\n"), "FILE:1: kind: is missing; begin the file with `kind: SpillwayConfiguration`"},
		{"apiVersion misspelled", "apiversion: " + wanted + "\nkind: SpillwayConfiguration\n",
			"FILE:1: apiversion: no such setting; did you mean apiVersion?"},
		{"kind misspelled", kind("Kind: SpillwayConfiguration\n"), "FILE:2: Kind: no such setting; did you mean kind?"},
		{"another kind", kind("\nkind: Pod\n"), "FILE:3: kind: Pod: must be SpillwayConfiguration"},
		{"a kind in other letters", kind("kind: spillwayconfiguration\n"),
			"FILE:2: kind: spillwayconfiguration: must be SpillwayConfiguration"},
		{"no text as kind", kind("kind: [a]\n"), "FILE:2: kind: must be SpillwayConfiguration"},
		{"kind without a value", kind("kind:\n"), "FILE:2: kind: must be SpillwayConfiguration"},
		{"another group", version("apps/v1"), "FILE:1: apiVersion: apps/v1: must be " + wanted},
		{"no group", version("v1alpha1"), "FILE:1: apiVersion: v1alpha1: must be " + wanted},
		{"no version", version("config.spillway.example.com/latest"),
			"FILE:1: apiVersion: config.spillway.example.com/latest: must be " + wanted},
		{"a newer version", version("config.spillway.example.com/v1"),
			"FILE:1: apiVersion: config.spillway.example.com/v1: is newer than v1alpha1, which this spillway reads; " +
				"upgrade spillway, or write the file for v1alpha1"},
		{"a newer version with the same stability", version("config.spillway.example.com/v1alpha2"),
			"FILE:1: apiVersion: config.spillway.example.com/v1alpha2: is newer than v1alpha1, which this spillway reads; " +
				"upgrade spillway, or write the file for v1alpha1"},
		{"an older version", version("config.spillway.example.com/v1alpha0"),
			"FILE:1: apiVersion: config.spillway.example.com/v1alpha0: is older than v1alpha1, which this spillway reads; " +
				"translate the file, as CHANGELOG.md shows"},
		// the keys
		{"a misspelled key", fileStart + "profiling: true\nresorces: [pods]\n",
			"FILE:4: resorces: no such setting; did you mean resources?"},
		{"a key in small letters", fileStart + "historybytes: 1Mi\n",
			"FILE:3: historybytes: no such setting; did you mean historyBytes?"},
		{"the name of a flag", fileStart + "profiling: true\n\nhistory-bytes: 1Mi\n",
			"FILE:5: history-bytes: no such setting; in a configuration file it is historyBytes"},
		{"the name of a flag with an acronym", fileStart + "client-ca-file: a\n",
			"FILE:3: client-ca-file: no such setting; in a configuration file it is clientCAFile"},
		{"the name of a flag, misspelled", fileStart + "client-ca-fil: a\n",
			"FILE:3: client-ca-fil: no such setting; did you mean clientCAFile?"},
		{"the name of a variable", fileStart + "SPILLWAY_LISTEN_TLS: a\n",
			"FILE:3: SPILLWAY_LISTEN_TLS: no such setting; in a configuration file it is listenTLS"},
		{"no key at all", fileStart + "zzz: 1\n", "FILE:3: zzz: no such setting; spillway config print lists all"},
		{"an empty key", fileStart + "\"\": 1\n", "FILE:3: : no such setting; spillway config print lists all"},
		{"a list as a key", fileStart + "[a]: 1\n", "FILE:3: a key must be a name, such as historyBytes"},
		{"a flag that is no setting", fileStart + "version: true\n",
			"FILE:3: version: no such setting; spillway config print lists all"},
		{"another file", fileStart + "config: other.yaml\n",
			"FILE:3: config: a configuration file cannot name another; remove the line"},
		{"a key twice", fileStart + "listen: a:1\n\nlisten: b:1\n",
			"FILE:5: listen: given twice, first in line 3; keep one"},
		{"a key of the header twice", fileStart + "kind: a\n", "FILE:3: kind: given twice, first in line 2; keep one"},
		// the types; the other ones are in TestValuesOfOtherTypesAreRefused
		{"no value", fileStart + "listen:\n", "FILE:3: listen: has no value; write one, or remove the line"},
		{"several values for one", fileStart + "listen: [a, b]\n", "FILE:3: listen: must be a text, not a list"},
		{"a section", fileStart + "listen:\n  address: a\n", "FILE:3: listen: must be a text, not a mapping"},
		{"a number as a text", fileStart + "listenMode: 0600\n", `FILE:3: listenMode: 0600: must be a text; write "0600"`},
		{"a bool as a text", fileStart + "listenOwner: true\n", `FILE:3: listenOwner: true: must be a text; write "true"`},
		{"a text as a bool", fileStart + "profiling: \"true\"\n",
			`FILE:3: profiling: "true": must be true or false, without quotes`},
		{"yes is a text", fileStart + "profiling: yes\n", "FILE:3: profiling: yes: must be true or false, without quotes"},
		{"a text as a number", fileStart + "maxWatches: '7'\n",
			`FILE:3: maxWatches: "7": must be a whole number, without quotes`},
		{"half a number", fileStart + "maxWatches: 1.5\n", "FILE:3: maxWatches: 1.5: must be a whole number"},
		{"a size with a fraction", fileStart + "historyBytes: 1.5\n",
			"FILE:3: historyBytes: 1.5: must be a number of bytes, such as 64Mi or 67108864"},
		{"a duration without a unit", fileStart + "stallTimeout: 30\n",
			"FILE:3: stallTimeout: 30: must be a number with a unit, such as 30s or 2m"},
		{"a duration in quotes without a unit", fileStart + "stallTimeout: '30'\n",
			"FILE:3: stallTimeout: 30: must be a number with a unit, such as 30s or 2m"},
		{"a number as a word", fileStart + "logLevel: 5\n", "FILE:3: logLevel: 5: must be debug, info, warn or error"},
		{"a list in a text", fileStart + "resources: pods,nodes\n",
			"FILE:3: resources: pods,nodes: must be a list, such as [pods, nodes]"},
		{"a mapping as a list", fileStart + "resources: {pods: true}\n",
			"FILE:3: resources: must be a list, not a mapping"},
		{"a list in a list", fileStart + "resources:\n- pods\n- [nodes]\n", "FILE:5: resources: " + aText},
		{"nothing in a list", fileStart + "resources:\n- pods\n-\n", "FILE:5: resources: " + aText},
		{"a number in a list", fileStart + "resources:\n- pods\n- 7\n", `FILE:5: resources: 7: ` + aText + `; write "7"`},
		// values that no setting may have
		{"a word that is none", fileStart + "logLevel: loud\n",
			"FILE:3: logLevel: loud: must be debug, info, warn or error"},
		{"a number out of bounds", fileStart + "maxResources: 0\n",
			"FILE:3: maxResources: 0: must be at least 1; to mirror nothing on demand, leave * out of resources"},
		{"an address for all", fileStart + "\nlisten: \":1\"\n",
			"FILE:4: listen: :1: plain HTTP is served on loopback only: use 127.0.0.1, [::1], localhost or unix:///path " +
				"here, and listenTLS for other machines"},
		{"a setting without the one that it needs", fileStart + "listenAllowConnect: true\n",
			"FILE:3: listenAllowConnect: true: requires listenIdentity: self"},
		{"a setting without an address that it needs", fileStart + "sidecarDir: /a\n",
			"FILE:3: sidecarDir: /a: requires listenTLS on loopback, such as listenTLS: 127.0.0.1:6443"},
		// YAML
		{"a list as a file", "- pods\n",
			"FILE:1: must be lines of the form `key: value`, as spillway config print writes them"},
		{"broken YAML", fileStart + "resources: [pods\n",
			"FILE:3: not valid YAML: did not find expected ',' or ']'; " + lines},
		{"a tab", fileStart + "profiling:\n\ttrue\n",
			"FILE:4: not valid YAML: found character that cannot start any token; " + lines},
		{"two documents", fileStart + "---\nprofiling: false\n", "FILE:3: a second YAML document begins here; keep one"},
		{"a broken second document", fileStart + "---\n[\n",
			"FILE:5: not valid YAML: did not find expected node content; " + lines},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeFile(t, "conf.yaml", tt.text)
			expectLine(t, start(nil, "--config="+path), strings.ReplaceAll(tt.want, "FILE", path))
		})
	}
}

func TestAMissingConfigFileIsNamedWhereItWasSet(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.yaml")
	expectLine(t, start(nil, "--config", missing), "--config="+missing+": cannot be read: no such file or directory")
	expectLine(t, start([]string{"SPILLWAY_CONFIG=" + missing}), "SPILLWAY_CONFIG="+missing+
		": cannot be read: no such file or directory")
}

// A file that the command line overrides is checked all the same.
func TestAnOverriddenValueOfAnotherTypeIsRefused(t *testing.T) {
	path := writeFile(t, "conf.yaml", fileStart+"maxWatches: many\n")
	expectLine(t, start(nil, "--config="+path, "--max-watches=7"),
		path+":3: maxWatches: many: must be a whole number, without quotes")
}

// Every setting is refused in each type that is not its own, with the file, the line and the key.
func TestValuesOfOtherTypesAreRefused(t *testing.T) {
	const list, mapping, nothing = "[a]", "{a: b}", "null"
	accepted := map[string][]string{
		"bool": {"true"}, "int": {"7"}, "float64": {"7", "1.5"}, "bytes": {"7", "text"}, "stringSlice": {list},
	}
	for _, s := range New().rows {
		if s.key() == "" {
			continue
		}
		kind := New().flags.Lookup(s.name).Value.Type()
		for _, value := range []string{"true", "7", "1.5", "text", "2001-01-01", list, mapping, nothing} {
			o := New()
			entries, err := parseConfigFile("c.yaml", []byte(fileStart+s.key()+": "+value+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			err = o.readEntries("c.yaml", entries)
			_, known := accepted[kind]
			good := strings.Contains(strings.Join(accepted[kind], " "), value) || !known && value == "text"
			misfit := err != nil && strings.HasPrefix(err.Error(), "c.yaml:3: "+s.key()+": ")
			if !good && !misfit || good && err != nil && value != "text" {
				t.Errorf("%s: %s: %v", s.key(), value, err)
			}
		}
	}
}

// The keys are what Kubernetes would call them.
func TestKeysOfTheFile(t *testing.T) {
	for flag, want := range map[string]string{
		"listen": "listen", "disable-http2-serving": "disableHTTP2Serving", "history-bytes": "historyBytes",
		"tls-cert-file": "tlsCertFile", "tls-private-key-file": "tlsPrivateKeyFile",
		"client-ca-file": "clientCAFile", "listen-tls": "listenTLS", "watch-rbac": "watchRBAC",
		"authentication-local-jwks":    "authenticationLocalJWKS",
		"max-passthrough-qps-per-user": "maxPassthroughQPSPerUser", "audit-log-maxage": "auditLogMaxAge",
		"requestheader-client-ca-file": "requestHeaderClientCAFile", "requestheader-uid-headers": "requestHeaderUIDHeaders",
		"api-audiences": "apiAudiences", "config": "",
	} {
		if got := New().row(flag).key(); got != want {
			t.Errorf("the key of %s is %q, want %q", flag, got, want)
		}
	}
	seen := map[string]string{apiVersionKey: "the header", kindKey: "the header"}
	for _, s := range New().rows {
		if other := seen[s.key()]; other != "" {
			t.Errorf("%s and %s have the key %s", s.name, other, s.key())
		}
		seen[s.key()] = s.name
	}
}

// probe is a value of a setting that is not its default, as text and in YAML.
func probe(s *setting) (text, inYAML string) {
	switch v := s.value.(type) {
	case *bool:
		text = fmt.Sprint(!*v)
	case *int:
		text = "7"
	case *float64:
		text = "2.5"
	case *ByteSize:
		text = "9Mi"
	case *[]string:
		return "one,two", "[one, two]"
	case *string:
		if text = "probe"; s.words != nil {
			text = s.words[len(s.words)-1]
		}
	default:
		text = "9s"
	}
	return text, text
}

// Every setting can be set from all three places, and Print says from which.
func TestEverySettingByFlagVariableAndFile(t *testing.T) {
	for _, s := range New().rows {
		text, inYAML := probe(s)
		t.Run(s.name, func(t *testing.T) {
			want := New()
			if err := want.flags.Parse([]string{"--" + s.name + "=" + text}); err != nil {
				t.Fatal(err)
			}
			expectSet(t, want, want, s, "--"+s.name)

			variable := New()
			if err := variable.readEnvironment([]string{s.variable() + "=" + text}); err != nil {
				t.Fatal(err)
			}
			expectSet(t, variable, want, s, s.variable())

			if s.key() == "" {
				return
			}
			file := New()
			file.ConfigFile = writeFile(t, "c.yaml", fileStart+s.key()+": "+inYAML+"\n")
			if err := file.Complete(nil); err != nil {
				t.Fatal(err)
			}
			expectSet(t, file, want, s, file.ConfigFile+":3")
		})
	}
}

// expectSet checks that a setting was set in a place, and to the value that it has in want.
func expectSet(t *testing.T, got, want *Settings, s *setting, place string) {
	t.Helper()
	f, wanted := got.flags.Lookup(s.name), want.flags.Lookup(s.name)
	if !f.Changed || f.Value.String() != wanted.Value.String() || f.Value.String() == f.DefValue {
		t.Errorf("%s: set: %v, to %s; want %s", place, f.Changed, f.Value, wanted.Value)
	}
	if s.key() == "" {
		return
	}
	var b strings.Builder
	if err := got.Print(&b); err != nil {
		t.Fatal(err)
	}
	printed := b.String()
	if !strings.Contains(printed, "\n"+s.key()+": ") || !strings.Contains(printed, " # "+place+"\n") {
		t.Errorf("%s: %s is not a line of\n%s", place, s.key(), printed)
	}
}

// A configuration file cannot crash the program, and an error is in one place of it.
func FuzzConfigFile(f *testing.F) {
	for _, text := range []string{"", fileStart, fileStart + "resources: [pods, *a]\n", "? a\n: &a [*a]\n",
		fileStart + "historyBytes: 64Mi\nmaxPassthroughQPSPerUser: 2.5\nprofiling: true\nstallTimeout: 3s\n",
		"- &a a\n- <<: *a\n", "%YAML 1.1\n---\n!!binary a: !x b\n", "a: |\n  b\n", "\xff\xfe"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := parseConfigFile("conf.yaml", text)
		o := New()
		if err == nil {
			err = o.readEntries("conf.yaml", entries)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "conf.yaml:") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		expectSamePrinted(t, o)
	})
}
