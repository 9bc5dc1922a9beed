package config

import (
	"strings"
	"testing"
)

func TestPrintedFile(t *testing.T) {
	path := writeFile(t, "c.yaml", fileStart+"historyBytes: 128Mi\nresources: [pods, nodes]\ndisableHTTP2Serving: false\n")
	got := startBare([]string{"SPILLWAY_STALL_TIMEOUT=1m"}, "--config="+path, "--listen-identity=self",
		"--max-passthrough-qps-per-user=1000000", "--listen-mode=0600", "--api-audiences=")
	if got.options == nil {
		t.Fatal(got.stderr)
	}
	var b strings.Builder
	if err := got.options.Print(&b); err != nil {
		t.Fatal(err)
	}
	printed := b.String()
	if !strings.HasPrefix(printed, fileStart) {
		t.Errorf("begins with %.80q", printed)
	}
	for _, line := range []string{
		"historyBytes: 128Mi # " + path + ":3", "resources: [pods, nodes] # " + path + ":4",
		"disableHTTP2Serving: false # " + path + ":5", // set to the default
		"stallTimeout: 1m0s # SPILLWAY_STALL_TIMEOUT", "listenIdentity: self # --listen-identity",
		"maxPassthroughQPSPerUser: 1e+06 # --max-passthrough-qps-per-user", `listenMode: "0600" # --listen-mode`,
		"apiAudiences: [] # --api-audiences",
		"#maxStaleness: 1h0m0s # default", "#requestHeaderUIDHeaders: [X-Remote-Uid] # default",
		"#profiling: false # default", "#memoryBudget: 0 # default", `#kubeconfig: "" # default`, "# Cache",
	} {
		if !strings.Contains(printed, "\n"+line+"\n") {
			t.Errorf("%q is not a line", line)
		}
	}
	for _, s := range got.options.rows {
		n := strings.Count(printed, "\n"+s.key()+": ") + strings.Count(printed, "\n#"+s.key()+": ")
		if n != 1 && s.key() != "" {
			t.Errorf("%s is in %d lines", s.key(), n)
		}
	}
	if strings.Contains(printed, "\n#config") || strings.Contains(printed, "\nconfig") {
		t.Error("the file names another")
	}
	expectSamePrinted(t, got.options)
}

// expectSamePrinted checks that what is printed can be read, and sets the same settings to the same
// values.
func expectSamePrinted(t *testing.T, o *Settings) {
	t.Helper()
	var b strings.Builder
	if err := o.Print(&b); err != nil {
		t.Fatal(err)
	}
	entries, err := parseConfigFile("printed.yaml", []byte(b.String()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	again := New()
	if err := again.readEntries("printed.yaml", entries); err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	for _, s := range o.rows {
		was, is := o.flags.Lookup(s.name), again.flags.Lookup(s.name)
		if s.key() != "" && (was.Value.String() != is.Value.String() || was.Changed != is.Changed) {
			t.Errorf("%s: was %q, set: %v; is %q, set: %v", s.name, was.Value, was.Changed, is.Value, is.Changed)
		}
	}
}

// A text that would be no UTF-8 in a file is refused.
func TestATextThatNoFileCanHoldIsNotPrinted(t *testing.T) {
	o := New()
	if err := o.readEnvironment([]string{"SPILLWAY_KUBECONFIG=\xff"}); err != nil {
		t.Fatal(err)
	}
	err := o.Print(&strings.Builder{})
	const want = "SPILLWAY_KUBECONFIG=\xff: cannot be written to a configuration file: "
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// Whatever text a setting has, and whatever the file is called, the printed file has the text.
func FuzzPrintedTexts(f *testing.F) {
	for _, text := range []string{"", "a", "yes", "0600", "1e3", "~", "a: b # c", "-", "[a]", "\n", "a\n  b\n",
		"\u0085\u2028\ufeff", "\x7f\x00", "'\"", "\xff", strings.Repeat("long words ", 30)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o := New()
		environ := []string{"SPILLWAY_KUBECONFIG=" + text, "SPILLWAY_LISTEN_OWNER=" + text + "\n#"}
		if err := o.readEnvironment(environ); err != nil {
			t.Fatal(err)
		}
		o.AcceptHosts = []string{text, "a" + text, text}
		o.flags.Lookup("accept-hosts").Changed = true
		o.origins["accept-hosts"] = origin{place: text, key: "acceptHosts"}
		if err := o.Print(&strings.Builder{}); err != nil {
			if !strings.Contains(err.Error(), "invalid UTF-8") {
				t.Fatal(err)
			}
			return
		}
		expectSamePrinted(t, o)
	})
}
