package status

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"spillway/test/framework/process"
)

// terminal looks at spillway top as operators do: on a terminal, which tmux is.
func (w *world) terminal(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("no tmux here: make browser installs it")
	}
	socket := filepath.Join(t.TempDir(), "tmux")
	tmux := func(ctx context.Context, args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "tmux",
			append([]string{"-S", socket, "-f", "/dev/null"}, args...)...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("tmux %s: %w: %s", args[0], err, out)
		}
		return string(out), err
	}
	command := fmt.Sprintf("%s top --address=%s --interval=1s", w.binary, w.proxy.Metrics)
	if _, err := tmux(t.Context(), "new-session", "-d", "-x", "140", "-y", "32", command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = tmux(context.Background(), "kill-server") }) // which is gone, if all went well
	shows := func(what string, check func(lines []string) bool) string {
		t.Helper()
		screen := ""
		process.Awaiting(t, what, func(ctx context.Context) (err error) {
			if screen, err = tmux(ctx, "capture-pane", "-p"); err != nil {
				return err
			}
			if lines := strings.Split(screen, "\n"); !check(lines) {
				return fmt.Errorf("the screen shows\n%s", screen)
			}
			return nil
		})
		return screen
	}
	first := func(prefix string) func([]string) bool {
		return func(lines []string) bool {
			for i, line := range lines {
				if strings.HasPrefix(line, "User") && i+1 < len(lines) {
					return strings.HasPrefix(lines[i+1], prefix)
				}
			}
			return false
		}
	}
	t.Logf("by lag:\n%s", shows("the watch that lags", first("carol ")))
	press := func(key string) {
		t.Helper()
		if _, err := tmux(t.Context(), "send-keys", key); err != nil {
			t.Fatal(err)
		}
	}
	press("Left")
	t.Logf("by user:\n%s", shows("the order by user", first("alice ")))
	press("p")
	shows("the pause", func(lines []string) bool { return lines[1] == "paused" })
	press("q")
	process.Awaiting(t, "its end", func(ctx context.Context) error {
		if _, err := tmux(ctx, "has-session"); err == nil {
			return fmt.Errorf("it goes on")
		}
		return nil
	})
}
