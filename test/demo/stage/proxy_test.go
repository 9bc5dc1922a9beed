package stage

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestAPortThatIsTakenMeanwhileIsTriedAgain starts a script that always finds its port taken.
func TestAPortThatIsTakenMeanwhileIsTriedAgain(t *testing.T) {
	runtime.LockOSThread()
	for _, c := range []struct {
		name, says string
		attempts   int
	}{
		{"a port that is in use", "--listen is in use by another process", 5},
		{"another failure", "no such resource", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			script := filepath.Join(dir, "spillway")
			if err := os.WriteFile(script, []byte("#!/bin/sh\necho '"+c.says+"'\nexit 1\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			_, err := StartProxy(t.Context(), NewConsole(&out), script, dir, "kubeconfig", "pods")
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
			if n := strings.Count(out.String(), "$ spillway"); n != c.attempts {
				t.Errorf("%d attempts instead of %d:\n%s", n, c.attempts, out.String())
			}
		})
	}
}

func TestFetchTakesNothingButOK(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	if _, err := Fetch(t.Context(), s.URL); err == nil || err.Error() != "404 Not Found" {
		t.Errorf("got %v", err)
	}
}
