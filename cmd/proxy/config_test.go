package main

import (
	"regexp"
	"strings"
	"testing"
)

// What spillway config print writes is read again as the same settings, wherever the file is named.
func TestConfigPrintIsReadAgain(t *testing.T) {
	file := writeFile(t, "c.yaml", "apiVersion: config.spillway.example.com/v1alpha1\nkind: SpillwayConfiguration\n"+
		"resources: [pods, \"*\", pods]\nmaxPassthroughQPSPerUser: 2.5\n")
	environ := []string{"SPILLWAY_STALL_TIMEOUT=1m", "SPILLWAY_LISTEN_IDENTITY=self", "SPILLWAY_PROFILING=true"}
	args := []string{"--history-bytes", "128Mi", "--profiling=false", "--config", file}
	first := startBare(environ, append([]string{"config", "print"}, args...)...)
	if first.code != 0 || first.stderr != "" || first.options != nil {
		t.Fatalf("%+v", first)
	}
	for _, want := range []string{
		"resources: [pods, '*'] # " + file + ":3", "maxPassthroughQPSPerUser: 2.5 # " + file + ":4",
		"stallTimeout: 1m0s # SPILLWAY_STALL_TIMEOUT", "historyBytes: 128Mi # --history-bytes",
		"profiling: false # --profiling", "#maxWatches: 100000 # default", `#kubeconfig: "" # default`,
	} {
		if !strings.Contains(first.stdout, "\n"+want+"\n") {
			t.Errorf("no line %s in\n%s", want, first.stdout)
		}
	}
	comment := regexp.MustCompile(` # .*`)
	values := comment.ReplaceAllString(first.stdout, "")
	printed := writeFile(t, "printed.yaml", first.stdout)
	for _, again := range []result{
		startBare(nil, "--config", printed, "config", "print"),
		startBare(nil, "config", "print", "--config="+printed),
		startBare(nil, "config", "--config="+printed, "print"),
		startBare([]string{"SPILLWAY_CONFIG=" + printed}, "config", "print"),
		startBare(environ, append(args, "config", "print")...), // the first time, with the flags in front
	} {
		if got := comment.ReplaceAllString(again.stdout, ""); again.code != 0 || got != values {
			t.Errorf("%+v\nwant\n%s", again, values)
		}
	}
	if got := startBare(nil, "--config", printed); got.options == nil || got.options.HistoryBytes != 128<<20 {
		t.Errorf("%+v", got)
	}
}

// A file can be printed without a kubeconfig, because it may be for a pod, and without resources,
// because it may be a template.
func TestConfigPrintNeedsNoKubeconfig(t *testing.T) {
	got := given(t, "", "config", "print")
	if got.code != 0 || !strings.Contains(got.stdout, "\nkind: SpillwayConfiguration\n") {
		t.Errorf("%+v", got)
	}
}

// A wrong setting is one line, and nothing is printed.
func TestConfigPrintRefusesWhatSpillwayRefuses(t *testing.T) {
	expectLine(t, start(nil, "config", "print", "--stall-timeout=0s"), "--stall-timeout=0s: must be at least 1ms")
	expectLine(t, start([]string{"SPILLWAY_LISTN=x"}, "config", "print"),
		"SPILLWAY_LISTN: no such setting; did you mean SPILLWAY_LISTEN?")
	expectLine(t, start(nil, "config", "print", "--histry-bytes=1"),
		"--histry-bytes: no such flag; did you mean --history-bytes?")
	expectLine(t, start(nil, "config", "print", "--version"),
		"--version: no such flag; spillway --help=all lists them")
	file := writeFile(t, "c.yaml", "history-bytes: 8Mi\n")
	expectLine(t, start(nil, "config", "print", "--config="+file), file+":1: apiVersion: is missing; begin the file with "+
		"`apiVersion: config.spillway.example.com/v1alpha1`")
	expectLine(t, start(nil, "config", "prnt"), `unexpected argument "prnt": did you mean spillway config print?`)
	expectLine(t, start(nil, "config", "print", "x"),
		`unexpected argument "x": spillway config print takes flags only; spillway --help=all lists them`)
}

func TestHelpOfConfigPrintIsReadable(t *testing.T) {
	got := start(nil, "config", "print", "--help")
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	checkHelp(t, got.stdout, "help-config-print.txt", 116)
	if bare := start(nil, "config"); bare.stdout != start(nil, "config", "--help").stdout || bare.code != 0 {
		t.Errorf("spillway config: %+v", bare)
	}
}
