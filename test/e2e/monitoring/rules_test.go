package monitoring

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"spillway/test/framework/process"
)

// promtool runs Prometheus' tool for rules and metrics. It reads in.
func promtool(t *testing.T, in []byte, args ...string) {
	t.Helper()
	program := filepath.Join(process.Repository(t), "bin", "tools", "promtool")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: run make tools", err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdin = bytes.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	promtool(t, nil, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(process.Repository(t), "charts",
		"spillway", "alerts.yaml"))
	promtool(t, nil, "test", "rules", "testdata/alerts.yaml")
}

// Each alert is tried where it fires and where it does not.
func TestEveryAlertIsTried(t *testing.T) {
	text, err := os.ReadFile("testdata/alerts.yaml")
	must(t, err)
	var tried struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	must(t, yaml.Unmarshal(text, &tried))
	var fires, silent []string
	for _, one := range tried.Tests {
		for _, at := range one.AlertRuleTest {
			if len(at.ExpAlerts) > 0 {
				fires = append(fires, at.Alertname)
			} else {
				silent = append(silent, at.Alertname)
			}
		}
	}
	for _, group := range alertRules(t).Groups {
		for _, rule := range group.Rules {
			if !slices.Contains(fires, rule.Alert) || !slices.Contains(silent, rule.Alert) {
				t.Errorf("%s: tried where it fires: %t, where it does not: %t", rule.Alert, slices.Contains(fires, rule.Alert),
					slices.Contains(silent, rule.Alert))
			}
		}
	}
}

// The dashboard shows each metric of an alert. No two of its panels have the same title.
func TestDashboardShowsWhatAlertsWatch(t *testing.T) {
	metric := regexp.MustCompile(`\bspillway_[a-z0-9_]+`)
	var panels strings.Builder
	for _, q := range dashboardQueries(t) {
		panels.WriteString(q.text + "\n")
	}
	shown := metric.FindAllString(panels.String(), -1)
	for _, q := range alertQueries(t) {
		for _, name := range metric.FindAllString(q.text, -1) {
			if !slices.Contains(shown, name) {
				t.Errorf("%s depends on %s, and no panel shows it", q.where, name)
			}
		}
	}
	titled := map[string]bool{"": true}
	for _, panel := range readDashboard(t).Panels {
		if titled[panel.Title] {
			t.Errorf("%q is not the title of one panel", panel.Title)
		}
		titled[panel.Title] = true
	}
}

// runbooks is where the documents are, as the alerts name it.
const runbooks = "https://spillway.example.com/source/blob/main/"

// Each alert has a severity, and a runbook that is a section of a document. Each section of
// docs/operations.md about an alert has one.
func TestEachAlertHasASeverityAndARunbook(t *testing.T) {
	linked := map[string]bool{}
	for _, group := range alertRules(t).Groups {
		for _, rule := range group.Rules {
			if severity := rule.Labels["severity"]; severity != "critical" && severity != "warning" {
				t.Errorf("%s has the severity %q", rule.Alert, severity)
			}
			document, anchor, _ := strings.Cut(strings.TrimPrefix(rule.Annotations["runbook_url"], runbooks), "#")
			if anchor != strings.ToLower(rule.Alert) || !slices.Contains(alertSections(t, document), rule.Alert) {
				t.Errorf("%s has the runbook %s, and %s has no section about it", rule.Alert, rule.Annotations["runbook_url"],
					document)
			}
			linked[rule.Alert] = true
		}
	}
	for _, section := range alertSections(t, "docs/operations.md") {
		if !linked[section] {
			t.Errorf("docs/operations.md has a section %s, and there is no such alert", section)
		}
	}
}

// alertSections are the headings of a document that are names of alerts. The anchor of such a
// heading is the name in lower case.
func alertSections(t *testing.T, document string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(process.Repository(t), document))
	must(t, err)
	for _, heading := range regexp.MustCompile(`(?m)^### (Spillway[A-Za-z]+)$`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, heading[1])
	}
	return names
}
