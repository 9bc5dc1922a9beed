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
	open := func(name, order string) {
		t.Helper()
		command := fmt.Sprintf("%s top --address=%s --interval=1s --sort=%s", w.binary, w.proxy.Metrics, order)
		_, err := tmux(t.Context(), "new-session", "-d", "-s", name, "-x", "140", "-y", "32", command)
		if err != nil {
			t.Fatal(err)
		}
	}
	open("lag", "lag")
	t.Cleanup(func() { _, _ = tmux(context.Background(), "kill-server") }) // which is gone, if all went well
	shows := func(name, what string, check func(lines []string) bool) string {
		t.Helper()
		screen := ""
		process.Awaiting(t, what, func(ctx context.Context) (err error) {
			if screen, err = tmux(ctx, "capture-pane", "-p", "-t", name); err != nil {
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
				if strings.HasPrefix(line, "USER") && i+1 < len(lines) {
					return strings.HasPrefix(lines[i+1], prefix)
				}
			}
			return false
		}
	}
	t.Logf("by lag:\n%s", shows("lag", "the watch that lags", first("carol ")))
	open("user", "user")
	t.Logf("by user:\n%s", shows("user", "the order by user", first("alice ")))
	for _, name := range []string{"lag", "user"} {
		if _, err := tmux(t.Context(), "send-keys", "-t", name, "C-c"); err != nil {
			t.Fatal(err)
		}
		process.Awaiting(t, "its end", func(ctx context.Context) error {
			if _, err := tmux(ctx, "has-session", "-t", name); err == nil {
				return fmt.Errorf("it goes on")
			}
			return nil
		})
	}
}
