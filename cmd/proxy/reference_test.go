package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
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
// in snake case. A gauge x beside a counter x_total would be one family in OpenMetrics.
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
	for name, kind := range kinds {
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
	fmt.Fprintf(&b, "%s# Flags\n\n%s\n\n```yaml\n%s\n```\n\n`spillway --help` prints the same text. The flags of its "+
		"[commands](#flags-of-commands) are below.\n", madeHere,
		inCode.ReplaceAllString(strings.NewReplacer("\n\n", "\n\n", "\n", " ").Replace(sources), "`$0`"),
		strings.ReplaceAll(example, "\n  ", "\n"))
	o := config.New()
	for _, g := range o.FlagGroups() {
		fmt.Fprintf(&b, "\n## %s\n\n| flag | variable | key in the file | value | default | what it does |\n"+
			"|---|---|---|---|---|---|\n", g.Name)
		g.Flags.VisitAll(func(f *pflag.Flag) {
			variable, key := o.NamesOf(f.Name)
			flagRow(&b, f, quoted(variable), quoted(key))
		})
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
		{name: "Limits", about: "Requests that wait or are refused. `limit` is `watches`, `list_bytes` or `passthrough`."},
		{name: "Authentication and authorization",
			about: "Reviews of requests, and repeated reviews of running watches. With `--insecure-allow-all`, there are none."},
		{name: "Audit log", about: "The audit log of answers from memory, which `--audit-policy-file` switches on."},
		{name: "Files", about: "Certificates, keys, tokens and kubeconfigs, which are read again when they change. The " +
			"label `file` is the path, and `use` the purpose."},
		{name: "The process", about: "Loops that do not move, and log lines that are lost. All of these should stay 0."},
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
	groups[7].collectors = []prometheus.Collector{watchdog.NewCollector(nil), logging.NewCollector(nil)}
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
			"plural alone in the core group.\n")
	for _, g := range metricGroups() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| metric | type | labels | what it is |\n|---|---|---|---|\n", g.name, g.about)
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

// description is what a collector says of a metric.
type description struct{ name, kind, help, labels string }

func (d description) row() string {
	labels := ""
	if d.labels != "" {
		labels = "`" + strings.ReplaceAll(d.labels, ",", "`, `") + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", d.name, d.kind, labels, inCell(d.help))
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
