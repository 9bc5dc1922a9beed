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

// record writes the table of a program into a document, between the markers that bear the name of a
// section.
func record(path, section, title string, began time.Time, table string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	replaced, err := replaceBetween(string(text), section, caption(title, began)+"\n\n"+table)
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
func caption(title string, began time.Time) string {
	command := "go run ./" + title
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "results" && f.Name != "report-only" {
			command += fmt.Sprintf(" -%s=%s", f.Name, f.Value)
		}
	})
	return fmt.Sprintf("`%s`, %s at %s, in %s.", command, began.Format(time.DateOnly), commit(),
		time.Since(began).Round(time.Second))
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

// picture shows a drawing in a document.
func picture(title, path string) string { return fmt.Sprintf("![%s](%s)", title, path) }
