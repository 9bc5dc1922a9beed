package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"spillway/test/framework/process"
)

// promtool runs Prometheus' tool for rules.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	program := filepath.Join(process.Repository(t), "bin", "tools", "promtool")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: run make tools", err)
	}
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(process.Repository(t), "charts", "spillway",
		"alerts.yaml"))
	promtool(t, "test", "rules", "testdata/alerts.yaml")
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
