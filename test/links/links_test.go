package links

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"spillway/test/process"
)

// documents are what people read, from the root of the repository.
func documents(t *testing.T, root string) (all []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "bench/RESULTS.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

func TestLinks(t *testing.T) {
	root := process.Repository(t)
	links := 0
	for _, document := range documents(t, root) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range linksIn(string(text)) {
			links++
			if why := broken(document, link); why != "" {
				t.Errorf("%s: %s: %s", strings.TrimPrefix(document, root+"/"), link, why)
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}

// What is not there is found to be missing, so that the test above can fail.
func TestBrokenLinks(t *testing.T) {
	document := filepath.Join(t.TempDir(), "a.md")
	text := "# One\n\n[good](#a-b-and-c) [good](a.md#one) [bad](b.md) ![bad](pictures/a.svg) [bad](#two) [elsewhere](https://example.com)\n\n## A, `b` and C\n\n```\n[code](c.md)\n```\n"
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	links := linksIn(text)
	var bad []string
	for _, link := range links {
		if broken(document, link) != "" {
			bad = append(bad, link)
		}
	}
	if want := []string{"b.md", "pictures/a.svg", "#two"}; len(links) != 5 || !slices.Equal(bad, want) {
		t.Errorf("%q of %q, want %q", bad, links, want)
	}
}

var (
	aLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	aHeading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	aBlock   = regexp.MustCompile("(?ms)^```.*?^```")
)

// linksIn are the links of a document that stay in this repository.
func linksIn(text string) (all []string) {
	for _, found := range aLink.FindAllStringSubmatch(aBlock.ReplaceAllString(text, ""), -1) {
		if !strings.Contains(found[1], "://") && !strings.HasPrefix(found[1], "mailto:") {
			all = append(all, found[1])
		}
	}
	return all
}

// broken is why a link of a document leads nowhere; empty: it does not.
func broken(document, link string) string {
	path, anchor, _ := strings.Cut(link, "#")
	target := document
	if path != "" {
		target = filepath.Join(filepath.Dir(document), path)
	}
	if _, err := os.Stat(target); err != nil {
		return "there is no such file"
	}
	if anchor == "" {
		return ""
	}
	text, err := os.ReadFile(target)
	if err != nil {
		return err.Error()
	}
	for _, heading := range aHeading.FindAllStringSubmatch(aBlock.ReplaceAllString(string(text), ""), -1) {
		if anchorOf(heading[1]) == anchor {
			return ""
		}
	}
	return "there is no such heading"
}

// anchorOf is what GitHub calls a heading in links.
func anchorOf(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			return r
		}
		return -1
	}, strings.ToLower(heading))
}
