package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/pflag"

	"spillway/internal/audit"
	"spillway/internal/config"
	"spillway/internal/flowcontrol"
	"spillway/internal/logging"
	"spillway/internal/memory"
	"spillway/internal/mirror"
	"spillway/internal/passthrough"
	"spillway/internal/rotation"
	"spillway/internal/serve"
	"spillway/internal/watchdog"
)

// docs/flags.md and docs/metrics.md are what the code says, and nothing else.
func TestReferences(t *testing.T) {
	for name, made := range map[string]string{"flags.md": flagReference(), "metrics.md": metricReference(t)} {
		path := filepath.Join("..", "..", "docs", name)
		if *update {
			if err := os.WriteFile(path, []byte(made), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		kept, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(kept) != made {
			t.Errorf("docs/%s is not what the code says: run go test ./cmd/proxy -update", name)
		}
	}
}

// TestMetricNames holds the naming conventions of Prometheus: promlint's, units as suffixes, labels
// in snake case. A gauge x beside a counter x_total would be one family in OpenMetrics. No two
// names differ only in the endings of words, as backfill_watches and backfilled_watches do.
func TestMetricNames(t *testing.T) {
	unit := regexp.MustCompile(`_(duration|age|lag|span|staleness|wait)$`)
	size := regexp.MustCompile(`bytes`)
	label := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	kinds := map[string]string{}
	var families []*dto.MetricFamily
	for _, g := range metricGroups() {
		for _, c := range g.collectors {
			for _, d := range described(t, c) {
				if _, known := kinds[d.name]; known {
					continue
				}
				kinds[d.name] = d.kind
				kind := dto.MetricType(dto.MetricType_value[strings.ToUpper(d.kind)])
				families = append(families, &dto.MetricFamily{Name: &d.name, Help: &d.help, Type: &kind})
				if base := strings.TrimSuffix(d.name, "_total"); unit.MatchString(base) ||
					size.MatchString(base) && !strings.HasSuffix(base, "_bytes") {
					t.Errorf("%s: the unit is not its suffix", d.name)
				}
				for name := range strings.SplitSeq(d.labels, ",") {
					if name != "" && !label.MatchString(name) {
						t.Errorf("%s: label %q", d.name, name)
					}
				}
			}
		}
	}
	if len(families) < 80 {
		t.Errorf("only %d metrics were found", len(families))
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	ending, stems := regexp.MustCompile(`(ed|es|s)?(_|$)`), map[string]string{}
	for name, kind := range kinds {
		stem := ending.ReplaceAllString(strings.TrimSuffix(name, "_total"), "$2")
		if other := stems[stem]; other != "" {
			t.Errorf("%s and %s differ only in the endings of words", name, other)
		}
		stems[stem] = name
		if base, counter := strings.CutSuffix(name, "_total"); counter && kinds[base] != "" {
			t.Errorf("%s: there is a %s %s", name, kinds[base], base)
		}
		if !strings.HasPrefix(name, "spillway_") || kind == "gauge" && strings.HasSuffix(name, "_count") {
			t.Errorf("%s is a %s", name, kind)
		}
	}
}

const madeHere = "<!-- Made by go test ./cmd/proxy -update: change the code, not this. -->\n"

// flagReference is docs/flags.md.
func flagReference() string {
	var b strings.Builder
	sources, example, _ := strings.Cut(sourcesHelp, "\n\n  ")
	fmt.Fprintf(&b, "%s# Flags\n\n%s\n\n```yaml\n%s\n```\n\n`spillway --help=all` prints the same text, and `spillway "+
		"--help` the first sentence about each of the common flags. The flags of [commands](#flags-of-commands) are below.\n",
		madeHere, inCode.ReplaceAllString(strings.NewReplacer("\n\n", "\n\n", "\n", " ").Replace(sources), "`$0`"),
		strings.ReplaceAll(example, "\n  ", "\n"))
	o := config.New()
	common, groups := pflag.NewFlagSet("", pflag.ContinueOnError), o.FlagGroups()
	common.SortFlags = false
	for _, g := range groups {
		common.AddFlagSet(g.Common)
	}
	settingTable(&b, o, "Common flags", common)
	for _, g := range groups {
		others := pflag.NewFlagSet("", pflag.ContinueOnError)
		others.SortFlags = false
		g.Flags.VisitAll(func(f *pflag.Flag) {
			if common.Lookup(f.Name) == nil {
				others.AddFlag(f)
			}
		})
		if others.HasFlags() {
			settingTable(&b, o, g.Name, others)
		}
	}
	fmt.Fprint(&b, "\n# Flags of commands\n\nThese flags can be given only on the command line. `spillway COMMAND "+
		"--help` prints the same text.\n")
	for _, cmd := range newCommand(nil, logging.NewOutput(io.Discard), nil).Commands() {
		fmt.Fprintf(&b, "\n## spillway %s\n\n%s.\n", cmd.Name(), cmd.Short)
		if cmd.HasSubCommands() {
			fmt.Fprint(&b, "`spillway config print` accepts all flags of settings.\n")
			continue
		}
		fmt.Fprint(&b, "\n| flag | value | default | what it does |\n|---|---|---|---|\n")
		cmd.Flags().VisitAll(func(f *pflag.Flag) { flagRow(&b, f) })
	}
	return b.String()
}

// settingTable is a table of settings, each with its variable and its key.
func settingTable(b *strings.Builder, o *config.Settings, name string, flags *pflag.FlagSet) {
	fmt.Fprintf(b, "\n## %s\n\n| flag | variable | key in the file | value | default | what it does |\n"+
		"|---|---|---|---|---|---|\n", name)
	flags.VisitAll(func(f *pflag.Flag) {
		variable, key := o.NamesOf(f.Name)
		flagRow(b, f, quoted(variable), quoted(key))
	})
}

// flagRow is a flag as a row of a table, unless it is --help, which all commands have. More cells
// follow the flag's name.
func flagRow(b *strings.Builder, f *pflag.Flag, more ...string) {
	if f.Name == "help" {
		return
	}
	value, usage := pflag.UnquoteUsage(f)
	if value == "" {
		value = "true or false"
	}
	name := quoted("--" + f.Name)
	if f.Shorthand != "" {
		name += ", " + quoted("-"+f.Shorthand)
	}
	cells := append(append([]string{name}, more...), inCell(value), initially(f), inCell(usage))
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

// quoted is a text as code; nothing if it is empty.
func quoted(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// inCode is what of a help text is code.
var inCode = regexp.MustCompile(`--[a-z-]+|SPILLWAY_\w+|SPILLWAY_\*|\bhistoryBytes\b|\bspillway config print\b`)

// initially is the value of a flag that is not given; nothing if that is empty.
func initially(f *pflag.Flag) string {
	return quoted(strings.Trim(f.DefValue, "[]"))
}

// inCell is a text in a cell of a table.
func inCell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(text)
}

// metricGroups are the metrics by the package that shows them, in the order in which one looks at
// them.
func metricGroups() []metricGroup {
	groups := []metricGroup{
		{name: "Mirrors", about: "One series for each mirrored resource and version."},
		{name: "Watches, lists and connections",
			about: "Answers from memory. The counters of a resource exist after its first request."},
		{name: "Pass-through", about: "Requests that the API server answers."},
		{name: "Limits", about: "Requests that wait or are rejected, by the label `limit`:\n\n" +
			"| `limit` | flag | what is in use of it |\n|---|---|---|\n" +
			"| `watches` | `--max-watches` | open watches, logs and connections, from memory or passed through |\n" +
			"| `list_bytes` | `--max-list-bytes-in-flight` | bytes of large lists and initial states that are being sent |\n" +
			"| `passthrough_requests` | `--max-passthrough-requests` | requests being passed through |\n" +
			"| `selector_terms` | `--max-selector-terms-per-user` | terms of the selectors of all watches from memory. " +
			"Equal selectors of one user count once |\n" +
			"| `header_bytes` | `--max-large-header-bytes` | bytes of large request headers |"},
		{name: "Authentication and authorization",
			about: "Reviews of requests, and repeated reviews of running watches. With `--insecure-allow-all`, there are none."},
		{name: "Audit log", about: "The audit log of answers from memory, which `--audit-policy-file` switches on."},
		{name: "Files", about: "Certificates, keys, tokens and kubeconfigs, which are read again when they change. The " +
			"label `file` is the path, and `use` the purpose."},
		{name: "The process", about: "The build, loops that do not move, and log lines that are lost. All but the build " +
			"should stay 0."},
		{name: "Memory", about: "Memory and its budget. Without a budget, the memory in use and the steps are missing."},
	}
	groups[0].collectors = []prometheus.Collector{mirror.NewCollector(nil)}
	serve.NewMetrics(&groups[1])
	passthrough.NewForwardMetrics(&groups[2])
	flowcontrol.NewLimiter(serverLimits(config.New().Limits), flowcontrol.DefaultQueue, &groups[3])
	newAccessMetrics(&groups[4])
	registerReviewMetrics(&groups[4], func() float64 { return 0 })
	audit.NewMetrics(&groups[5])
	groups[6].collectors = []prometheus.Collector{rotation.NewCollector(nil)}
	registerBuildInfo(&groups[7])
	groups[7].collectors = append(groups[7].collectors, watchdog.NewCollector(nil), logging.NewCollector(nil))
	groups[8].collectors = []prometheus.Collector{memory.NewCollector(nil, nil, nil)}
	return groups
}

// metricGroup is a heading, and a Registerer that notes what is registered.
type metricGroup struct {
	prometheus.Registerer
	name, about string
	collectors  []prometheus.Collector
}

// MustRegister implements prometheus.Registerer.
func (g *metricGroup) MustRegister(all ...prometheus.Collector) {
	g.collectors = append(g.collectors, all...)
}

// metricReference is docs/metrics.md.
func metricReference(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprint(&b, madeHere,
		"# Metrics\n\nSpillway serves metrics at `/metrics` on `--metrics-listen`, with metrics of the Go runtime "+
			"(`go_…`) and of the process (`process_…`). ",
		"No label names a namespace, an object, a user or a selector. The label `resource` is `plural.group`, or the "+
			"plural alone in the core group.\n", stabilityHelp)
	for _, g := range metricGroups() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n"+
			"| metric | type | labels | stability | what it is |\n|---|---|---|---|---|\n", g.name, g.about)
		said := map[string]bool{}
		for _, c := range g.collectors {
			for _, d := range described(t, c) {
				if line := d.row(); !said[d.name] {
					said[d.name] = true
					b.WriteString(line)
				}
			}
		}
	}
	return b.String()
}

// The stability of metrics, as Kubernetes calls it. Each metric that is in neither list is ALPHA.
var (
	stableMetrics = []string{
		"spillway_build_info",
		"spillway_cached_requests_total",
		"spillway_client_connections",
		"spillway_mirror_staleness_seconds",
		"spillway_mirror_state",
		"spillway_passthrough_requests_total",
		"spillway_watch_terminations_total",
		"spillway_watches",
	}
	betaMetrics = []string{
		"spillway_audit_failures_total",
		"spillway_consistency_check_mismatches_total",
		"spillway_file_expiry_timestamp_seconds",
		"spillway_file_reload_failed",
		"spillway_flowcontrol_in_use",
		"spillway_flowcontrol_limit",
		"spillway_flowcontrol_rejected_requests_total",
		"spillway_list_duration_seconds",
		"spillway_local_decision_disagreements_total",
		"spillway_memory_degraded",
		"spillway_memory_in_use_bytes",
		"spillway_memory_limit_bytes",
		"spillway_panics_total",
		"spillway_paused_watches",
		"spillway_reviews_denied",
		"spillway_slow_client_watches",
		"spillway_watch_lag_seconds",
	}
)

// stabilityHelp is what docs/metrics.md says of stability.
const stabilityHelp = `
| stability | name, type and labels |
|---|---|
| ALPHA | may change in any release |
| BETA | may change in a minor release. The changelog names the old and the new name |
| STABLE | change only in the two steps of [a deprecation](../VERSIONING.md#deprecation) |

All metrics of the chart's alerts are BETA or STABLE.
`

func stabilityOf(name string) string {
	switch {
	case slices.Contains(stableMetrics, name):
		return "STABLE"
	case slices.Contains(betaMetrics, name):
		return "BETA"
	}
	return "ALPHA"
}

// Each metric whose stability is declared exists, and no alert depends on a metric that may change
// in any release.
func TestStabilityOfMetrics(t *testing.T) {
	reference := metricReference(t)
	for _, name := range slices.Concat(stableMetrics, betaMetrics) {
		if !strings.Contains(reference, "| `"+name+"` |") {
			t.Errorf("%s has a stability, and is no metric", name)
		}
	}
	alerts, err := os.ReadFile(filepath.Join("..", "..", "charts", "spillway", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`spillway_[a-z_]+`).FindAllString(string(alerts), -1)
	if len(names) < 10 {
		t.Fatalf("the alerts name only %q", names)
	}
	for _, name := range names {
		if stabilityOf(name) == "ALPHA" {
			t.Errorf("an alert depends on %s, which is ALPHA", name)
		}
	}
}

// description is what a collector says of a metric.
type description struct{ name, kind, help, labels string }

func (d description) row() string {
	labels := ""
	if d.labels != "" {
		labels = "`" + strings.ReplaceAll(d.labels, ",", "`, `") + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", d.name, d.kind, labels, stabilityOf(d.name), inCell(d.help))
}

// inDesc finds in a Desc, which can only be printed, its name, help, constant and variable labels.
var inDesc = regexp.MustCompile(
	`^Desc\{fqName: ("[^"]*"), help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", ` +
		`constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)

func described(t *testing.T, c prometheus.Collector) (all []description) {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	for desc := range descs {
		found := inDesc.FindStringSubmatch(desc.String())
		if found == nil {
			t.Fatalf("cannot read %s", desc)
		}
		name, _ := strconv.Unquote(found[1])
		help, _ := strconv.Unquote(found[2])
		constant, _, _ := strings.Cut(found[3], "=")
		d := description{name: name, kind: "gauge", help: help, labels: strings.Trim(constant+","+found[4], ",")}
		switch _, histogram := c.(*prometheus.HistogramVec); {
		case histogram || isObserver(c):
			d.kind = "histogram"
		case strings.HasSuffix(name, "_total"): // test/e2e/monitoring lints a scrape
			d.kind = "counter"
		}
		if d.help == "" {
			t.Errorf("%s has no help", name)
		}
		all = append(all, d)
	}
	return all
}

func isObserver(c prometheus.Collector) bool {
	_, ok := c.(prometheus.Observer)
	return ok
}
