package rig

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"time"
)

var nan = math.NaN()

// record writes the table into a document, between the markers that bear the program's name.
func (s *Scores) record(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	replaced, err := replaceBetween(string(text), s.title, s.caption()+"\n\n"+s.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(replaced), 0o644)
}

// replaceBetween puts something between the markers with a name.
func replaceBetween(text, name, with string) (string, error) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	before, rest, found := strings.Cut(text, begin)
	_, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		return "", fmt.Errorf("no lines %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + with + end + after, nil
}

// caption says when and how the table came to be.
func (s *Scores) caption() string {
	command := "go run ./" + s.title
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "results" && f.Name != "report-only" {
			command += fmt.Sprintf(" -%s=%s", f.Name, f.Value)
		}
	})
	return fmt.Sprintf("`%s`, %s at %s, in %s.", command, s.began.Format(time.DateOnly), commit(), time.Since(s.began).Round(time.Second))
}

// commit is what git calls the sources that were measured.
func commit() string {
	root, err := repositoryRoot()
	if err != nil {
		return "an unknown commit"
	}
	out, err := exec.CommandContext(context.Background(), "git", "-C", root, "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "an unknown commit"
	}
	return strings.TrimSpace(string(out))
}
