package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"spillway/test/framework/process"
)

// query is the query of a panel or an alert.
type query struct{ where, text, legend string }

// dashboard is what tests look at of the chart's dashboard.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	must(t, json.Unmarshal(ofChart(t, "dashboard.json"), &d))
	return d
}

// dashboardQueries are those of the chart's dashboard, with everything chosen that can be chosen
// there.
func dashboardQueries(t *testing.T) (all []query) {
	t.Helper()
	dashboard := readDashboard(t)
	chosen := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*", "$resource", ".*")
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			all = append(all, query{where: panel.Title, text: chosen.Replace(target.Expr), legend: target.LegendFormat})
		}
	}
	for _, variable := range dashboard.Templating.List {
		if variable.Type != "query" {
			continue
		}
		var asked struct{ Query string }
		must(t, json.Unmarshal(variable.Query, &asked))
		values := inVariable.FindStringSubmatch(asked.Query)
		if values == nil {
			t.Fatalf("the variable %s is not label_values(…): %s", variable.Name, asked.Query)
		}
		all = append(all, query{where: "$" + variable.Name, text: chosen.Replace(values[1]), legend: "{{" + values[2] + "}}"})
	}
	return all
}

// inVariable finds the series and the label that a variable's values come from.
var inVariable = regexp.MustCompile(`^label_values\((.*), ([a-z_]+)\)$`)

// rules are the chart's alerts.
type rules struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr         string
			Labels, Annotations map[string]string
		}
	}
}

func alertRules(t *testing.T) (r rules) {
	t.Helper()
	must(t, yaml.Unmarshal(ofChart(t, "alerts.yaml"), &r))
	return r
}

// alertQueries are the queries of alerts, and the labels in their annotations.
func alertQueries(t *testing.T) (all []query) {
	t.Helper()
	for _, group := range alertRules(t).Groups {
		for _, rule := range group.Rules {
			all = append(all, query{where: rule.Alert, text: rule.Expr,
				legend: strings.ReplaceAll(rule.Annotations["description"], "$labels.", "")})
		}
	}
	return all
}

func ofChart(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(process.Repository(t), "charts", "spillway", file))
	must(t, err)
	return text
}

// unresolved is what of a query is not in a scrape.
func (q query) unresolved(s scrape) (problems []string) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(q.text)
	if err != nil {
		return []string{err.Error()}
	}
	found := &expressionNames{scrape: s}
	shown := found.labelsOf(expr)
	for _, name := range inLegend.FindAllStringSubmatch(q.legend, -1) {
		if !slices.Contains(shown, name[1]) {
			found.miss("the legend's label %s", name[1])
		}
	}
	return found.missing
}

// inLegend finds the labels that a legend or an annotation names.
var inLegend = regexp.MustCompile(`\{\{ *([a-z_]+) *\}\}`)

// expressionNames looks for what an expression names.
type expressionNames struct {
	scrape  scrape
	missing []string
}

func (f *expressionNames) miss(format string, args ...any) {
	f.missing = append(f.missing, fmt.Sprintf(format, args...))
}

// labelsOf are the labels that the result of an expression can have.
func (f *expressionNames) labelsOf(expr parser.Node) (names []string) {
	switch e := expr.(type) {
	case *parser.VectorSelector:
		return f.selected(e)
	case *parser.AggregateExpr:
		has := f.labelsOf(e.Expr)
		for _, name := range e.Grouping {
			if !slices.Contains(has, name) {
				f.miss("the label %s of %s", name, e.Expr)
			}
		}
		if e.Without {
			return slices.DeleteFunc(has, func(name string) bool { return slices.Contains(e.Grouping, name) })
		}
		return e.Grouping
	}
	for child := range parser.ChildrenIter(expr) {
		names = append(names, f.labelsOf(child)...)
	}
	return names
}

// selected are the labels of the series that a selector selects, of which there has to be one.
func (f *expressionNames) selected(s *parser.VectorSelector) (names []string) {
	found := false
	for _, series := range f.scrape.series {
		if matches(series, s.LabelMatchers) {
			found = true
			series.Range(func(l labels.Label) { names = append(names, l.Name) })
		}
	}
	if !found {
		f.miss("%s", s)
	}
	return names
}

func matches(series labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(series.Get(m.Name)) {
			return false
		}
	}
	return true
}
